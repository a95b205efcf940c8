// The page's icons: a few strokes each, in the colour of the surrounding text. They are decoration only: the button
// always has a text label too.

const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  back: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  inbox: "M2 9l2-6h8l2 6v4H2zM2 9h3.5l1 2h3l1-2H14",
  chart: "M2.5 13.5h11M4 11V8M8 11V4M12 11V6",
  gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM8 1.8v1.7M8 12.5v1.7M1.8 8h1.7M12.5 8h1.7M3.6 3.6l1.2 1.2M11.2 11.2l1.2 1.2M3.6 12.4l1.2-1.2M11.2 4.8l1.2-1.2",
  agent: "M3 5.5h10v8H3zM8 5.5V2.5M6 9h.01M10 9h.01M6 11.5h4",
  folder: "M2 4h4l1.5 1.5H14V13H2z",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.2 1.6",
  nodes: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  play: "M5 3v10l8-5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  clip: "M12.5 7.5 7.8 12.2a2.8 2.8 0 0 1-4-4L8.6 3.4a1.9 1.9 0 0 1 2.7 2.7L6.6 10.8a.9.9 0 0 1-1.3-1.3l4.3-4.3",
  link: "M6.5 9.5l3-3M7 4.5 8.5 3a2.8 2.8 0 0 1 4 4L11 8.5M5 7.5 3.5 9a2.8 2.8 0 0 0 4 4L9 11.5",
  copy: "M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3",
  fork: "M4.5 5.5v5M4.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM4.5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11.5 6a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11.5 6c0 3-7 2-7 4.5",
  undo: "M3 6h7a3.5 3.5 0 0 1 0 7H7M3 6l3-3M3 6l3 3",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  pencil: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3z",
  list: "M5.5 4H14M5.5 8H14M5.5 12H14M2.5 4h.01M2.5 8h.01M2.5 12h.01",
  panel: "M2 3h12v10H2zM10 3v10",
  bolt: "M9 2 4 9h4l-1 5 5-7H8z",
  tag: "M2.5 8.5v-6h6l5 5-6 6zM5.5 5.5h.01",
  archive: "M2 3h12v3H2zM3 6v7h10V6M6.5 8.5h3",
  trash: "M3 4h10M6 4V2.5h4V4M4.5 4l.5 9.5h6l.5-9.5",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM7 14h2",
  phone: "M5 1.5h6v13H5zM7.5 12.5h1",
  tool: "M9.5 6.5 13 3a3 3 0 0 1-4 4L5 11a1.4 1.4 0 0 1-2-2l4-4a3 3 0 0 1 4-4L7.5 4.5z",
  diff: "M3 2.5h7l3 3v8H3zM8 5.5v4M6 7.5h4M6 11.5h4",
  split: "M2 3h12v10H2zM8 3v10",
  wide: "M9.5 2.5h4v4M13.5 2.5 9 7M6.5 13.5h-4v-4M2.5 13.5 7 9",
  comment: "M2.5 3h11v8H8l-3 2.5V11H2.5z",
  up: "M3 10l5-5 5 5",
  commit: "M1.5 8h4M10.5 8h4M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  tree: "M2.5 3h4M5 6.5v6h3M5 8.5h3M8 8.5h5.5M8 12.5h5.5M5 3v5",
  download: "M8 2.5v9M4 8l4 4 4-4M3 14h10",
  queue: "M3 4h10M3 8h7M3 12h4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16, className = "" }: { name: IconName; size?: number; className?: string }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true" className={"shrink-0 " + className}>
      <path d={PATHS[name]} />
    </svg>
  );
}
