// Publish a turn, read its answer as it comes, and say that a tool is waited for.
//
// npm install @nats-io/transport-node @nats-io/jetstream; node turn.ts SESSION TURN TEXT [BYTES]
//
// BYTES is how much of the answer an earlier run has read: the same SESSION, TURN and
// TEXT is the same turn, so a program that was restarted goes on where it was.
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

type Frame = { x?: string; xi?: number };
type Result = { status: string; text: string; failure?: { message: string } };

const [session, turn, text, bytes] = process.argv.slice(2);
let read = Number(bytes ?? 0);
const nc = await connect({ servers: process.env.WEIR_NATS ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });
const js = jetstream(nc);
const body = { weir: { turn }, messages: [{ role: "user", content: text }], max_tokens: 200 };
await js.publish(`agent.default.${session}.turn`, JSON.stringify(body), { msgID: `${session}/${turn}` });

// Ordered consumers begin anew by themselves after a reconnect.
const out = await js.consumers.get("OUT", { filter_subjects: `out.default.${session}.${turn}` });
const frames = await out.consume({
  callback: (m) => {
    const { x = "", xi = 0 } = m.json<Frame>();
    const piece = Buffer.from(x);
    if (xi > read || read >= xi + piece.length) return; // it was read before
    process.stdout.write(piece.subarray(read - xi));
    read = xi + piece.length;
  },
});
const results = await js.consumers.get("RESULT", { filter_subjects: `result.default.${session}.${turn}` });
for await (const m of await results.consume()) {
  const result = m.json<Result>();
  frames.stop();
  if (result.status !== "ok") throw new Error(result.failure?.message);
  process.stdout.write(Buffer.from(result.text).subarray(read));
  break;
}

await js.publish(`agent.default.${session}.tool_wait`, JSON.stringify({ v: 1, tool: "pytest", expected_ns: 20e9 }));
await nc.close();
