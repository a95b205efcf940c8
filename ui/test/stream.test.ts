// One stream: it reconnects quickly, whatever the network does.

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
  it("does not wait for a response that never arrives", async () => {
    server.answer = never;
    const stream = open();
    await pass(4_100);
    expect(states).toEqual(["lost"]);
    server.answer = () => undefined;
    await pass(200);
    expect(stream.state).toBe("live");
    stream.close();
  });

  it("reconnects when nudged, unless it connected a moment ago", async () => {
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

  it("continues at its position after an event that is not in the log", async () => {
    const stream = open();
    await pass(100);
    server.streams[0]!.send({ type: "turn_end" }, "41");
    server.streams[0]!.send({ type: "session_erased" }, "");
    await pass(100);
    server.streams[0]!.end();
    await pass(1_000);
    expect(server.streams).toHaveLength(2);
    expect(server.streams[1]!.position).toBe("41");
    stream.close();
  });

  it("treats a gap in time as sleep, and reconnects", async () => {
    const stream = open();
    await pass(100);
    vi.setSystemTime(Date.now() + 25_000);
    await pass(5_300);
    expect(server.streams).toHaveLength(2);
    expect(stream.state).toBe("live");
    stream.close();
  });

  it("retries every half second for the first minute without a server, and later often enough to be back in a second", async () => {
    const tries: number[] = [];
    server.answer = () => (tries.push(Date.now()), Promise.reject(new TypeError("Failed to fetch")));
    const stream = open();
    const begun = Date.now();
    await pass(600_000);
    const pauses = tries.slice(1).map((at, index) => ({ ms: at - tries[index]!, early: at - begun < 60_000 }));
    expect(Math.max(...pauses.filter((one) => one.early).map((one) => one.ms))).toBeLessThanOrEqual(500);
    expect(Math.max(...pauses.map((one) => one.ms))).toBeLessThan(900);
    expect(tries.length).toBeLessThan(60 * 3 + 540 * 1.5);
    server.answer = () => undefined;
    await pass(900);
    expect(stream.state).toBe("live");
    stream.close();
  });

  it("reconnects immediately when nudged between two attempts", async () => {
    server.answer = () => Promise.reject(new TypeError("Failed to fetch"));
    const stream = open();
    await pass(90_000);
    server.answer = () => undefined;
    stream.nudge();
    await pass(1);
    expect(stream.state).toBe("live");
    stream.close();
  });
});
