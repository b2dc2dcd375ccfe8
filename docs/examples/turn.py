"""Publish a turn, read its answer as it comes, and say that a tool is waited for.

pip install nats-py; python turn.py SESSION TURN TEXT [BYTES]

BYTES is how much of the answer an earlier run has read: the same SESSION, TURN and
TEXT is the same turn, so a program that was restarted goes on where it was.
"""

import asyncio
import json
import os
import sys

import nats


async def main(session, turn, text, read=0):
    nc = await nats.connect(os.environ.get("WEIR_NATS", "nats://127.0.0.1:4222"), max_reconnect_attempts=-1)
    js = nc.jetstream()
    body = {"weir": {"turn": turn}, "messages": [{"role": "user", "content": text}], "max_tokens": 200}
    await js.publish(f"agent.default.{session}.turn", json.dumps(body).encode(), headers={"Nats-Msg-Id": f"{session}/{turn}"})

    async def show(msg):
        nonlocal read
        frame = json.loads(msg.data)
        at, piece = frame.get("xi", 0), frame.get("x", "").encode()
        if at <= read < at + len(piece):  # otherwise it was read before
            sys.stdout.buffer.write(piece[read - at :])
            sys.stdout.flush()
            read = at + len(piece)

    # Ordered consumers begin anew by themselves after a reconnect.
    await js.subscribe(f"out.default.{session}.{turn}", stream="OUT", ordered_consumer=True, cb=show)
    results = await js.subscribe(f"result.default.{session}.{turn}", stream="RESULT", ordered_consumer=True)
    result = json.loads((await results.next_msg(timeout=600)).data)
    if result["status"] != "ok":
        sys.exit(result["failure"]["message"])
    sys.stdout.buffer.write(result["text"].encode()[read:])

    await js.publish(f"agent.default.{session}.tool_wait", json.dumps({"v": 1, "tool": "pytest", "expected_ns": 20 * 10**9}).encode())
    await nc.close()


asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:5])))
