// One stream: it never waits for long, whatever the network does.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Stream, type StreamState } from "../src/wire/stream";
import { serve, type Server } from "./server";

let server: Server;
let states: StreamState[];
beforeEach(() => {
  vi.useFakeTimers();
  server = serve();
  states = [];
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const open = () => new Stream("/api/events?all=true", { events: () => {}, state: (state) => void states.push(state) });
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const never = () => new Promise<Response>(() => {});

describe("a stream", () => {
  it("does not wait for an answer that does not come", async () => {
    server.answer = never;
    const stream = open();
    await pass(4_100);
    expect(states).toEqual(["lost"]);
    server.answer = () => undefined;
    await pass(200);
    expect(stream.state).toBe("live");
    stream.close();
  });

  it("asks anew when it is nudged, unless it has only just asked", async () => {
    server.answer = never;
    const stream = open();
    await pass(500);
    stream.nudge();
    await pass(10);
    expect(server.requests).toHaveLength(1);
    await pass(700);
    server.answer = () => undefined;
    stream.nudge();
    await pass(200);
    expect(server.requests).toHaveLength(2);
    expect(stream.state).toBe("live");
    stream.close();
  });

  it("takes a gap in time for a sleep, and asks anew", async () => {
    const stream = open();
    await pass(100);
    vi.setSystemTime(Date.now() + 25_000);
    await pass(5_300);
    expect(server.streams).toHaveLength(2);
    expect(stream.state).toBe("live");
    stream.close();
  });
});
