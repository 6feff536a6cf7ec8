"""A request that a lease selects is changed exactly where the fault acts, the same way under any concurrency."""

import asyncio
import base64
import io
import json
import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chaos_mm.core.media import Image as FaultImage
from chaos_mm.core.rng import Rng
from chaos_mm.faults.image_noise import image_noise
from tests.proxy.conftest import Connect, StartProxy, until
from tests.proxy.traffic import audio_part, chat, chunked, clip, image_part, picture, post
from tests.proxy.wires import Answer, Message, RecordingUpstream, split

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SIGMA = {"params": {"sigma": 0.1}}


def upstream_of(answer: bytes = OK) -> RecordingUpstream:
    return RecordingUpstream(lambda _: Answer([answer]))


def content(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = json.loads(message.body)["messages"][1]["content"]
    return parts


def pixels(part: dict[str, Any]) -> Any:
    data = base64.b64decode(part["image_url"]["url"].split(",", 1)[1])
    return np.asarray(Image.open(io.BytesIO(data)))


async def test_noise_is_the_faults_own_and_all_else_keeps_its_bytes(start_proxy: StartProxy, connect: Connect) -> None:
    body = chat("what?", image_part(picture("PNG"), "image/png"), audio_part(clip()), temperature=0.10, n=1)
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        client = await connect(proxy.url)
        assert await client.ask(post(upstream.authority, body, "X-Request-Id: abc", "aCCept: */*")) == OK
        seen = upstream.received[0]
        before, after = json.loads(body), json.loads(seen.body)
        given = before["messages"][1]["content"][1]["image_url"]["url"]
        sent = after["messages"][1]["content"][1]["image_url"]["url"]
        assert seen.body == body.replace(given.encode(), sent.encode())
        clean = np.asarray(Image.open(io.BytesIO(picture("PNG"))))
        rng = Rng.derive(7, "abc", "messages[1].content[1]", "image_noise test")
        expected = image_noise(FaultImage(clean, "RGB"), rng, sigma=0.1).value.pixels
        assert np.array_equal(pixels(content(seen)[1]), expected)
        lines, _ = split(seen.raw)
        assert lines[1:] == [
            b"Host: " + upstream.authority.encode(),
            b"Content-Type: application/json",
            b"X-Request-Id: abc",
            b"aCCept: */*",
            b"Content-Length: %d" % len(seen.body),
        ]


async def test_evidence_is_what_arrived(start_proxy: StartProxy, connect: Connect) -> None:
    jpeg = picture("JPEG", quality=90)
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        await (await connect(proxy.url)).ask(post("x", chat(image_part(jpeg))))
        evidence = proxy.release()
        clean = np.asarray(Image.open(io.BytesIO(jpeg))).astype(float)
        noise = pixels(content(upstream.received[0])[0]) - clean
        assert evidence["matched"] == evidence["applied"] == 1
        assert evidence["achieved"]["psnr_db"]["mean"] == pytest.approx(10 * np.log10(255**2 / (noise**2).mean()))
        assert proxy.count("matched_total") == proxy.count("applied_total") == 1


async def test_a_lease_that_ended_leaves_the_next_request_clean(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        client, request = await connect(proxy.url), post(upstream.authority, chat(image_part(picture())))
        await client.ask(request)
        proxy.release()
        await client.ask(request)
        assert upstream.received[0].raw != request
        assert upstream.received[1].raw == request


async def test_each_modality_and_unicode(start_proxy: StartProxy, connect: Connect) -> None:
    words = " ".join(f"wörd{n}" for n in range(40))
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject("text_token_truncation", params={"share": 0.5, "side": "tail"})
        await (await connect(proxy.url)).ask(post("x", chat(words, image_part(picture()))))
        proxy.release()
        proxy.inject("audio_spectral_mask", params={"share": 0.4, "region": "time"})
        await (await connect(proxy.url)).ask(post("x", chat(words, audio_part(clip()))))
        evidence = proxy.release()
        cut = content(upstream.received[0])[0]["text"]
        assert words.startswith(cut.rstrip())
        assert len(cut) < 0.7 * len(words)
        masked = base64.b64decode(content(upstream.received[1])[1]["input_audio"]["data"])
        assert masked[:44] == clip()[:44]
        assert masked[44:] != clip()[44:]
        assert evidence["achieved"]["snr_db"]["count"] >= 1
        assert json.loads(upstream.received[1].body)["messages"][1]["content"][0]["text"] == words


async def test_the_same_ids_give_the_same_bytes_whatever_the_concurrency(
    start_proxy: StartProxy, connect: Connect
) -> None:
    bodies = [chat(f"{n}", image_part(picture("JPEG", 64 + n)), audio_part(clip())) for n in range(40)]
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:

        async def ask(n: int) -> None:
            await (await connect(proxy.url)).ask(post("x", bodies[n], f"x-request-id: id-{n}"))

        async def run(order: list[int], at_once: int) -> dict[str, bytes]:
            upstream.received.clear()
            proxy.inject(**SIGMA)
            gate = asyncio.Semaphore(at_once)

            async def gated(n: int) -> None:
                async with gate:
                    await ask(n)

            await asyncio.gather(*(gated(n) for n in order))
            proxy.release()
            return {message.header("x-request-id"): message.body for message in upstream.received}

        alone = await run(list(range(40)), 1)
        crowd = await run(random.Random(3).sample(range(40), 40), 32)
        assert len(alone) == 40
        assert alone == crowd
        assert all(alone[f"id-{n}"] != bodies[n] for n in range(40))


@pytest.mark.parametrize("lines", [(), ("X-Request-Id:",)])
async def test_a_missing_request_id_is_made_sent_and_returned(
    start_proxy: StartProxy, connect: Connect, lines: tuple[str, ...]
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        client = await connect(proxy.url)
        answers = [await client.ask(post("x", chat(image_part(picture())), *lines)) for _ in range(2)]
        sent = [message.header("x-request-id") for message in upstream.received]
        returned = [dict(line.split(b": ", 1) for line in split(a)[0][1:])[b"x-request-id"].decode() for a in answers]
        assert sent == returned
        assert len(set(sent)) == 2
        assert all(len(text) == 32 for text in sent)


async def test_an_upstream_that_returns_the_id_keeps_its_own_line(start_proxy: StartProxy, connect: Connect) -> None:
    answer = b"HTTP/1.1 200 OK\r\nX-Request-ID: its-own\r\nContent-Length: 0\r\n\r\n"
    async with upstream_of(answer).running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        assert await (await connect(proxy.url)).ask(post("x", chat(image_part(picture())))) == answer


async def test_a_chunked_body_that_is_changed_gets_a_length(start_proxy: StartProxy, connect: Connect) -> None:
    body = chat(image_part(picture()))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTrailer: X-Sum\r\n"
    raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, random.Random(1))
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        await (await connect(proxy.url)).ask(raw)
        seen = upstream.received[0]
        assert seen.header("content-length") == str(len(seen.body))
        assert (seen.header("transfer-encoding"), seen.header("trailer")) == ("", "")
        assert not np.array_equal(pixels(content(seen)[0]), np.asarray(Image.open(io.BytesIO(picture()))))


async def test_expect_100_is_met_by_the_proxy_when_it_holds_the_body(start_proxy: StartProxy, connect: Connect) -> None:
    request = post("x", chat(image_part(picture())), "Expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        answer = await (await connect(proxy.url)).ask(head + b"\r\n\r\n", body)
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert len(upstream.received) == 1


async def test_a_header_that_stands_twice_is_one_list(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius={"selector": "live,header:x-tenant=a"}, **SIGMA)
        client = await connect(proxy.url)
        requests = [
            post(upstream.authority, chat(image_part(picture())), *fields)
            for fields in (("x-tenant: a", "X-Tenant: b"), ("x-tenant: b", "x-tenant: a"), ("X-Tenant: a",))
        ]
        for request in requests:
            await client.ask(request)
        same = [message.raw == request for message, request in zip(upstream.received, requests, strict=True)]
        assert same == [True, True, False]


async def test_only_canaries_unless_told_otherwise(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius={"rate": 1.0, "selector": "canary"}, **SIGMA)
        client = await connect(proxy.url)
        forged = proxy.canary(1)[:-1] + ("0" if proxy.canary(1)[-1] != "0" else "1")
        requests = [
            post(upstream.authority, chat(image_part(picture())), f"x-request-id: {text}")
            for text in ("user-1", forged, proxy.canary(1))
        ]
        for request in requests:
            await client.ask(request)
        assert [message.raw == request for message, request in zip(upstream.received, requests, strict=True)] == [
            True,
            True,
            False,
        ]
        assert proxy.evidence()["matched"] == 1


@pytest.mark.parametrize(
    ("selector", "changed"),
    [
        ("live,modality:image", True),
        ("live,modality:audio", False),
        ("live,model:m", True),
        ("live,model:other", False),
        ("live,header:x-tenant=a", True),
        ("live,header:x-tenant=b", False),
        ("live,path:/v1/chat/completions", True),
    ],
)
async def test_selectors_see_head_and_body(
    start_proxy: StartProxy, connect: Connect, selector: str, changed: bool
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius={"rate": 1.0, "selector": selector}, **SIGMA)
        request = post(upstream.authority, chat(image_part(picture())), "X-Tenant: a")
        await (await connect(proxy.url)).ask(request)
        assert (upstream.received[0].raw != request) is changed


async def test_a_rate_is_met_by_hash_and_a_limit_ends_the_lease(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius={"rate": 0.5, "selector": "live"}, **SIGMA)
        client, body = await connect(proxy.url), chat(image_part(picture("JPEG", 16)))
        for n in range(200):
            await client.ask(post("x", body, f"x-request-id: {n}"))
        evidence = proxy.release()
        assert evidence["matched"] == 200
        assert 70 <= evidence["applied"] <= 130
        proxy.inject(blast_radius={"rate": 1.0, "selector": "live", "limit": 3}, **SIGMA)
        for _ in range(6):
            await client.ask(post("x", body))
        assert (proxy.evidence()["applied"], proxy.evidence()["ended_by"]) == (3, "limit")


async def test_a_plan_whose_upstream_is_away_is_not_counted_as_applied(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with start_proxy("http://127.0.0.1:1") as proxy:
        proxy.inject(**SIGMA)
        answer = await (await connect(proxy.url)).ask(post("x", chat(image_part(picture()))))
        assert answer.startswith(b"HTTP/1.1 502 ")
        evidence = proxy.release()
        assert (evidence["matched"], evidence["applied"], evidence["errored"]) == (1, 0, 0)


async def test_observe_harms_nothing(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(mode="observe", **SIGMA)
        request = post(upstream.authority, chat(image_part(picture())))
        await (await connect(proxy.url)).ask(request)
        assert upstream.received[0].raw == request
        assert (proxy.evidence()["matched"], proxy.evidence()["applied"]) == (1, 0)


async def test_live_requests_are_measured_now_and_then_and_canaries_always(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url, measure_every=3) as proxy:
        client, body = await connect(proxy.url), chat(image_part(picture("JPEG", 16)))
        for ids in ([f"user-{n}" for n in range(6)], [proxy.canary(n) for n in range(6)]):
            proxy.inject(**SIGMA)
            for text in ids:
                await client.ask(post("x", body, f"x-request-id: {text}"))
            evidence = proxy.release()
            assert evidence["applied"] == 6
            assert evidence["achieved"]["psnr_db"]["count"] == (2 if ids[0] == "user-0" else 6)


async def test_a_lease_that_ends_while_the_request_is_prepared_leaves_it_as_it_came(
    start_proxy: StartProxy, connect: Connect
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**SIGMA)
        client = await connect(proxy.url)
        request = post(upstream.authority, chat(image_part(picture("PNG", 1000)), n=1))
        asking = asyncio.create_task(client.ask(request))
        await until(lambda: any(lease.reserved for lease in proxy.book.live))
        evidence = proxy.release()
        assert await asking == OK
        assert upstream.received[0].raw == request
        assert (evidence["applied"], proxy.evidence()["applied"], proxy.evidence()["errored"]) == (0, 0, 0)
        assert proxy.count("applied_total") == 0


@pytest.mark.parametrize("lease", [{"mode": "observe"}, {"blast_radius": {"rate": 0.0, "selector": "live"}}])
async def test_what_cannot_be_changed_is_never_refused(
    start_proxy: StartProxy, connect: Connect, lease: dict[str, Any]
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url, on_undecodable="refuse") as proxy:
        proxy.inject(**SIGMA, **lease)
        for body in (b"not json", chat(image_part(b"no picture"))):
            request = post(upstream.authority, body)
            assert await (await connect(proxy.url)).ask(request) == OK
            assert upstream.received[-1].raw == request
