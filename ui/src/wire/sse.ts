// Parses server-sent events from a fetch body: text in, frames out. EventSource is not used, because it hides status
// codes, chooses its own retry delays and can't set a start position.

export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Splits incoming text into frames. An incomplete frame waits for the next piece. */
export class Framer {
  private rest = "";

  add(piece: string): Frame[] {
    const text = this.rest + piece;
    const end = text.lastIndexOf("\n\n");
    if (end < 0) {
      this.rest = text;
      return [];
    }
    this.rest = text.slice(end + 2);
    const frames: Frame[] = [];
    for (const block of text.slice(0, end).split("\n\n")) {
      const frame = parse(block);
      if (frame) frames.push(frame);
    }
    return frames;
  }
}

function parse(block: string): Frame | null {
  const frame: Frame = { id: "", event: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    if (name === "id" || name === "event" || name === "data") frame[name] = line.slice(colon + 2);
  }
  return frame.data ? frame : null;
}
