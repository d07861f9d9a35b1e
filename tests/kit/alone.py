"""One pod with a directory as its store, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path

from rtj_api.wire import Report, Resume

from kit.podlike import PodLike, make_pod


def begin(pods: list[PodLike], tmp_path: Path, **options: object) -> PodLike:
    options.setdefault("store", tmp_path / "store")
    pod = make_pod(tmp_path, **options)  # type: ignore[arg-type]
    pods.append(pod)
    return pod.start()


def newest(report: Report) -> Resume:
    # One that was only named when its pod died is no choice: `rules.resume.why_unusable`.
    can = [c for c in report.candidates if c.durable or c.name in report.pinned]
    best = next(c for c in can if c.invalid is None)
    return Resume(run="ns/gpt", name=best.name, step=best.step, durable=best.durable)


def committed(store: Path) -> list[dict]:
    found = (store / "ns/gpt/manifests").glob("*.json")
    return sorted((json.loads(f.read_text()) for f in found), key=lambda m: (m["fence"], m["n"]))


def result(pod: PodLike) -> str:
    return [line for line in pod.output().splitlines() if line.startswith("RESULT")][-1]
