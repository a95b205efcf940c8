// Server-sent events from a fetch body: bytes in, frames out. Pure but for the reader it is given. EventSource is not
// used, since it hides status codes, chooses its own delays and can't say where to begin.

export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Cuts a growing text into frames. What is not yet whole is kept for the next piece. */
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
