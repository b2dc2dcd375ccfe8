// Put an image into weir's bucket with a plain NATS client, and refer to it in a turn.
//
// npm install @nats-io/transport-node @nats-io/jetstream @nats-io/obj; node image.ts SESSION TURN FILE.png
//
// The object's name is the SHA-256 of its bytes in hex. Without width and height the
// image counts as described in part, and its KV is not kept.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { Objm } from "@nats-io/obj";

const [session, turn, file] = process.argv.slice(2);
const nc = await connect({ servers: process.env.WEIR_NATS ?? "nats://127.0.0.1:4222" });
const png = readFileSync(file);
const name = createHash("sha256").update(png).digest("hex");
const bucket = await new Objm(nc).open("PAYLOAD");
if ((await bucket.info(name)) === null) await bucket.putBlob({ name }, png);

const [w, h] = [png.readUInt32BE(16), png.readUInt32BE(20)]; // from the PNG's header
const url = `weir-media:${name}?type=image/png&w=${w}&h=${h}&bytes=${png.length}`;
const content = [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url } }];
await jetstream(nc).publish(`agent.default.${session}.turn`, JSON.stringify({ weir: { turn }, messages: [{ role: "user", content }], max_tokens: 16 }));
console.log(url);
await nc.close();
