"""Samples: canaries' alone, what truly travelled, two a lease, sent ones only, in bounded memory."""

import asyncio
import base64
import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chaos_mm.control.messages import Request
from chaos_mm.core.canary import canary_id, canary_key
from chaos_mm.core.fault import Point, Target
from chaos_mm.core.injector import Injector
from chaos_mm.core.lease import Lease
from chaos_mm.core.lease_book import LeaseBook, Limits
from chaos_mm.proxy.bodies import Form, Part
from chaos_mm.proxy.http1 import NO_BODY
from chaos_mm.proxy.json_spans import Span
from chaos_mm.proxy.matching import Outgoing
from chaos_mm.proxy.samples import KEEP_SECONDS, Sample, Samples
from chaos_mm.proxy.streams import pieces
from tests.core.samples import CATALOGUE, Clock, body, request
from tests.ports import free_ports
from tests.proxy.conftest import OWNER, TOKEN, Connect, RunningProxy, StartProxy
from tests.proxy.test_uploads import fields_of, upload
from tests.proxy.traffic import audio_part, chat, clip, image_part, picture, post
from tests.proxy.wires import Answer, RecordingUpstream, split

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
EVERYONE = {"rate": 1.0, "selector": "live"}
CANARIES = {"rate": 1.0, "selector": "canary"}
WORDS = " ".join(f"wörd{n}" for n in range(60))


def upstream_of() -> RecordingUpstream:
    return RecordingUpstream(lambda _: Answer([OK]))


def answer_of(proxy: RunningProxy, owner: str = OWNER) -> dict[str, Any]:
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}
    response = proxy.control.handle(Request("GET", "/samples", {"owner": owner}, headers))
    assert response.status == 200
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = json.loads(response.body)
    return found


def samples_of(proxy: RunningProxy, owner: str = OWNER) -> list[dict[str, Any]]:
    answer = answer_of(proxy, owner)
    assert answer["lost"] == 0
    samples: list[dict[str, Any]] = answer["samples"]
    return samples


def data(media: dict[str, str]) -> bytes:
    return base64.b64decode(media["data"], validate=True)


def canary(n: int) -> str:
    return f"X-Request-Id: {canary_id(canary_key(TOKEN), OWNER, n)}"


async def test_a_picture_is_what_came_and_what_arrived(start_proxy: StartProxy, connect: Connect) -> None:
    clean = picture("PNG")
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(params={"sigma": 0.1}, blast_radius=CANARIES)
        raw = post("x", chat("what?", image_part(clean, "image/png")), canary(1))
        await (await connect(proxy.url)).ask(raw)
        (sample,) = samples_of(proxy)
        evidence = proxy.release()
        url = json.loads(upstream.received[0].body)["messages"][1]["content"][1]["image_url"]["url"]
    arrived = base64.b64decode(url.partition(",")[2])
    assert (data(sample["before"]), data(sample["after"])) == (clean, arrived)
    assert sample["before"]["type"] == sample["after"]["type"] == "image/png"
    assert (sample["lease"], sample["fault"], sample["kind"]) == ("test", "image_noise", "image")
    assert (sample["part"], sample["request_id"]) == ("messages[1].content[1]", proxy.canary(1))
    assert sample["achieved"]["psnr_db"] == evidence["achieved"]["psnr_db"]["mean"]
    pixels = [np.asarray(Image.open(io.BytesIO(data(sample[name])))).astype(float) for name in ("before", "after")]
    assert 15 < np.std(pixels[1] - pixels[0]) < 30


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
async def test_a_clip_is_drawn_and_can_be_heard(start_proxy: StartProxy, connect: Connect, kind: str) -> None:
    subtype = "MPEG_LAYER_III" if kind == "mp3" else "PCM_16"
    clean = clip(kind.upper(), subtype)
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject("audio_spectral_mask", params={"share": 0.5, "region": "time"}, blast_radius=CANARIES)
        await (await connect(proxy.url)).ask(post("x", chat(WORDS, audio_part(clean, kind)), canary(1)))
        (sample,) = samples_of(proxy)
        arrived = json.loads(upstream.received[0].body)["messages"][1]["content"][1]["input_audio"]["data"]
    assert (sample["kind"], sample["part"]) == ("audio", "messages[1].content[1]")
    assert sample["axes"]["hz_max"] == 8000
    assert sample["axes"]["db_max"] - sample["axes"]["db_min"] == 80
    for name in ("before", "after"):
        assert sample[name]["type"] == "image/png"
        assert Image.open(io.BytesIO(data(sample[name]))).size == (640, 240)
        assert data(sample[f"media_{name}"])[:4] == b"RIFF"
    assert sample["before"] != sample["after"]
    if kind == "wav":
        assert data(sample["media_before"]) == clean
        assert data(sample["media_after"]) == base64.b64decode(arrived)


@pytest.mark.parametrize(
    ("path", "sent", "part"),
    [
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": WORDS}]},
            "messages[0].content",
        ),
        ("/v1/completions", {"model": "m", "prompt": WORDS}, "prompt"),
        ("/v1/embeddings", {"model": "m", "input": [WORDS, "x"]}, "input[0]"),
    ],
)
async def test_text_of_every_path(
    start_proxy: StartProxy, connect: Connect, path: str, sent: dict[str, Any], part: str
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject("text_token_truncation", params={"share": 0.5, "side": "tail"}, blast_radius=CANARIES)
        await (await connect(proxy.url)).ask(post("x", json.dumps(sent).encode(), canary(1), path=path))
        (sample,) = samples_of(proxy)
        arrived = upstream.received[0].body.decode()
    assert (sample["kind"], sample["part"], sample["before"]["type"]) == ("text", part, "text/plain")
    assert data(sample["before"]).decode() == WORDS
    cut = data(sample["after"]).decode()
    assert WORDS.startswith(cut)
    assert len(cut) < 0.7 * len(WORDS)
    assert f'"{cut}"' in arrived


async def test_an_upload(start_proxy: StartProxy, connect: Connect) -> None:
    content, content_type = upload(clip())
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1",
        "Host: x",
        canary(1),
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
    )
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject("audio_spectral_mask", params={"share": 0.5}, blast_radius=CANARIES)
        await (await connect(proxy.url)).ask("\r\n".join((*head, "", "")).encode() + content)
        (sample,) = samples_of(proxy)
        arrived = fields_of(upstream.received[0].body, content_type)["file"]
    assert (sample["kind"], sample["part"]) == ("audio", "file")
    assert (data(sample["media_before"]), data(sample["media_after"])) == (clip(), arrived)


async def test_nobody_but_a_canary_is_ever_kept(start_proxy: StartProxy, connect: Connect) -> None:
    right = canary_id(canary_key(TOKEN), OWNER, 1)
    forged = canary_id(canary_key("another token"), OWNER, 1)
    lines = [(), ("X-Request-Id: mine",), (f"X-Request-Id: {forged}",), (f"X-Request-Id: {right[:-1]}g",)]
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius=EVERYONE)
        question = chat("mine", image_part(picture()))
        for some in lines:
            await (await connect(proxy.url)).ask(post("x", question, *some))
        assert proxy.evidence()["applied"] == len(lines)
        assert samples_of(proxy) == []
        assert proxy.samples.size == 0
        await (await connect(proxy.url)).ask(post("x", question, canary(1)))  # among users', with the same lease
        assert [sample["request_id"] for sample in samples_of(proxy)] == [right]
        assert len(upstream.received) == len(lines) + 1


async def test_the_first_two_of_each_lease(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        for name, fault in (("noise", "image_noise"), ("cut", "text_token_truncation")):
            lease = {"owner": OWNER, "fault": fault, "ttl_seconds": 60, "blast_radius": CANARIES}
            proxy.book.put(name, {**lease, "params": {"share": 0.5} if name == "cut" else {"sigma": 0.1}})
        client = await connect(proxy.url)
        for n in range(5):
            await client.ask(post("x", chat(WORDS, image_part(picture()), image_part(picture("PNG"))), canary(n)))
        found = samples_of(proxy)
        assert len(upstream.received) == 5
    assert [(sample["lease"], sample["request_id"]) for sample in found] == [
        (name, canary_id(canary_key(TOKEN), OWNER, n)) for name in ("noise", "cut") for n in (0, 1)
    ]
    assert {sample["part"] for sample in found} == {"messages[1].content[0]", "messages[1].content[1]"}
    figures = [{"psnr_db"}] * 2 + [{"tokens_cut", "tokens_kept"}] * 2
    assert all(wanted <= set(sample["achieved"]) for wanted, sample in zip(figures, found, strict=True))


async def test_two_faults_on_one_part_are_one_change(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        for name in ("a", "b"):
            lease = {"owner": OWNER, "fault": "image_noise", "params": {"sigma": 0.1}, "blast_radius": CANARIES}
            proxy.book.put(name, lease)
        await (await connect(proxy.url)).ask(post("x", chat(image_part(picture())), canary(1)))
        first, second = samples_of(proxy)
        url = json.loads(upstream.received[0].body)["messages"][1]["content"][0]["image_url"]["url"]
    assert (first["lease"], second["lease"]) == ("a", "b")
    assert data(first["after"]) == data(second["after"]) == base64.b64decode(url.partition(",")[2])


async def test_what_was_not_sent_is_not_kept(start_proxy: StartProxy, connect: Connect) -> None:
    async with start_proxy(f"http://127.0.0.1:{free_ports(1)}") as proxy:
        proxy.inject(blast_radius=CANARIES)
        answer = await (await connect(proxy.url)).ask(post("x", chat(image_part(picture())), canary(1)))
        assert answer.startswith(b"HTTP/1.1 502")
        assert (proxy.evidence()["matched"], proxy.evidence()["applied"]) == (1, 0)
        assert samples_of(proxy) == []


@pytest.mark.parametrize("lease", [{"mode": "observe"}, {"params": {"sigma": 0.0}}, {"params": {"sigma": 1e-9}}])
async def test_what_was_not_changed_is_not_kept(
    start_proxy: StartProxy, connect: Connect, lease: dict[str, Any]
) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(**{"blast_radius": CANARIES, **lease})
        raw = post("x", chat(image_part(picture())), canary(1))
        await (await connect(proxy.url)).ask(raw)
        assert proxy.evidence()["matched"] == 1
        assert proxy.evidence()["applied"] == len(samples_of(proxy))
        assert (split(upstream.received[0].raw)[1] == split(raw)[1]) is (samples_of(proxy) == [])


@pytest.mark.parametrize("fate", ["sent", "overtaken", "lost"])
async def test_kept_is_what_was_committed(fate: str) -> None:
    store, kept = Store(), []
    lease = store.lease("one")
    plan = Injector(store.book).plan(request())
    assert plan is not None
    plan.apply(Target.TEXT, "hello", "prompt")
    out = Outgoing(b"", pieces(asyncio.StreamReader(), NO_BODY), original=(b"", []), plan=plan)
    out.committed = lambda: kept.append(fate)
    if fate == "overtaken":
        store.book.release(lease.name, "one")
    out.take_back()
    out.settle(sent=fate != "lost")
    assert kept == ["sent"] * (fate == "sent")
    assert lease.applied == len(kept)


async def test_runs_are_told_apart(start_proxy: StartProxy, connect: Connect) -> None:
    async with upstream_of().running() as upstream, start_proxy(upstream.url) as proxy:
        proxy.inject(blast_radius=CANARIES)
        await (await connect(proxy.url)).ask(post("x", chat(image_part(picture())), canary(1)))
        assert samples_of(proxy, "r0000000000bb") == []
        assert len(samples_of(proxy)) == len(upstream.received) == 1


class Store:
    """A store of few bytes with leases to keep samples of."""

    def __init__(self, max_bytes: int = 10_000) -> None:
        self.clock, self.counts = Clock(), Counter[str]()
        self.samples = Samples(self._count, max_bytes=max_bytes, clock=self.clock)
        self.book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=Limits(max_owners=64), clock=self.clock)

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    def lease(self, owner: str, name: str = "a") -> Lease:
        return self.book.put(name + owner, body(owner))

    def keep(self, lease: Lease, size: int, count: int = 1) -> None:
        for n in range(count):
            self.clock.now += 1
            half = bytes(size // 2)
            self.samples.keep([Sample(lease, f"q{n}", "prompt", Target.TEXT, Form.TEXT, half, half, {})])

    def owners(self, names: Sequence[str]) -> dict[str, int]:
        return {name: len(self.samples.run(name)) for name in names}


def changed(store: Store, text: bytes = b'"hello"', canary: bool = True) -> Callable[[], None]:
    """What the store gives for one changed request."""
    plan = Injector(store.book).plan(request(canary=canary))
    assert plan is not None
    plan.apply(Target.TEXT, "hello", "prompt")
    part = Part("prompt", Target.TEXT, Span(0, len(text)), Form.TEXT)
    return store.samples.of(plan, text, [(part, text + b"x")])


def test_nothing_is_held_of_what_would_not_be_kept() -> None:
    store = Store(500)
    store.book = LeaseBook(CATALOGUE, point=Point.PROXY, limits=Limits(allow_live=True, max_rate=1.0))
    store.book.put("a", body("run", blast_radius=EVERYONE))
    nothing = changed(store, canary=False)
    assert changed(store, bytes(300)) is nothing
    assert store.counts == {"no_room": 1}
    for _ in range(2):
        changed(store)()
    assert [(one.before, one.after) for one in store.samples.run("run")] == [(b'"hello"', b'"hello"x')] * 2
    assert changed(store) is nothing
    assert store.counts == {"no_room": 1, "kept": 2}


def test_memory_is_bounded_and_old_runs_go_first() -> None:
    store = Store(10_000)
    leases = {name: store.lease(name) for name in ("one", "two", "three")}
    store.keep(leases["one"], 3000, 2)
    store.keep(leases["two"], 3000)
    assert store.owners(list(leases)) == {"one": 2, "two": 1, "three": 0}
    store.keep(leases["three"], 1500)
    assert store.owners(list(leases)) == {"one": 0, "two": 1, "three": 1}
    assert 4500 <= store.samples.size <= 10_000


def test_a_run_never_pushes_its_own_samples_out_nor_others_for_nothing() -> None:
    store = Store(10_000)
    old, lease, second = store.lease("old"), store.lease("new"), store.lease("new", "b")
    store.keep(old, 3000)
    store.keep(lease, 6000)
    store.keep(second, 6000)
    assert store.owners(["old", "new"]) == {"old": 1, "new": 1}
    assert store.counts == {"kept": 2, "no_room": 1}
    store.keep(second, 2000)  # a smaller one may come instead; the old run makes room
    assert store.owners(["old", "new"]) == {"old": 0, "new": 2}


def test_two_runs_do_not_oust_each_other_for_ever() -> None:
    store = Store(10_000)
    first, second = store.lease("first"), store.lease("second")
    for _ in range(5):
        store.keep(first, 4000, 2)
        store.keep(second, 4000, 2)
    assert store.owners(["first", "second"]) == {"first": 0, "second": 2}
    assert store.counts["kept"] == 4


def test_many_threads_stay_within_the_bound() -> None:
    store = Store(50_000)
    leases = [store.lease(f"run{n}", name) for n in range(8) for name in "abc"]
    sizes: list[int] = []

    def keep(lease: Lease) -> None:
        for size in (9000, 20_000, 400, 3000):
            half = bytes(size // 2)
            store.samples.keep([Sample(lease, "q", "prompt", Target.TEXT, Form.TEXT, half, half, {})])
            sizes.append(store.samples.size)

    threads = [threading.Thread(target=keep, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sizes) == 4 * len(leases)
    assert 0 < max(sizes) <= 50_000
    assert all(len(store.samples.run(f"run{n}")) <= 6 for n in range(8))


def test_an_hour_is_the_end_of_it() -> None:
    store = Store()
    lease = store.lease("one")
    store.keep(lease, 100)
    store.clock.now += KEEP_SECONDS / 2
    store.keep(lease, 200)
    store.clock.now += KEEP_SECONDS / 2
    store.samples.expire()
    assert 200 <= store.samples.size < 400
    store.clock.now += KEEP_SECONDS / 2
    assert store.samples.run("one") == []
    store.keep(lease, 100)  # the lease has had its two
    assert store.samples.size == 0


def test_a_lease_put_again_begins_again_and_its_forerunner_cannot_come_back() -> None:
    store = Store()
    first = store.lease("one")
    store.keep(first, 100, 2)
    store.book.release(first.name, "one")
    store.clock.now += 1
    second = store.lease("one")
    store.keep(second, 200)
    store.keep(first, 300)  # it was still on its way
    assert [sample.lease for sample in store.samples.run("one")] == [second]


def test_the_leases_remembered_are_bounded() -> None:
    store = Store()
    for n in range(1100):
        store.keep(store.lease(f"r{n}"), 2)
        store.book.release(f"ar{n}", f"r{n}")
    assert store.samples.run("r0") == []
    assert len(store.samples.run("r1099")) == 1
    assert len(store.samples._kept) <= 1001
