"""The logs of a gang as they come: a reader a pod, and new pods as they appear.

Lines are told as they arrive: to wait for the order of slow ranks would delay all. Must end all
that it started.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from rtj_cli.cluster import Cluster, ClusterProblem
from rtj_cli.merging import Line, Source, lines_of

LOOK_SECONDS = 3.0
Sources = Callable[[], tuple[list[Source], bool]]


def followed(
    cluster: Cluster, *, namespace: str, sources: Sources, since: str | None
) -> Iterator[Line]:
    """`sources`: whose logs are to be read now, and whether the job has ended; asked again and
    again. The stream ends with the job, once every reader is at its end."""
    lines: queue.Queue[Line] = queue.Queue(maxsize=10_000)
    stop = threading.Event()
    readers: dict[str, threading.Thread] = {}

    def read(source: Source, begin: str | None) -> None:
        words = ["logs", source.pod, "-c", source.container, "--timestamps", "-f"]
        words += [f"--since={begin}"] if begin else []
        with cluster.lines(*words, namespace=namespace) as text:
            for line in lines_of(text, rank=source.rank):
                while not stop.is_set():
                    try:
                        lines.put(line, timeout=0.5)
                        break
                    except queue.Full:
                        continue
                if stop.is_set():
                    return

    has_ended, first = False, True
    try:
        while True:
            if not has_ended:
                try:
                    now, has_ended = sources()
                except ClusterProblem as problem:
                    if problem.is_forbidden or first:
                        raise
                    now = []  # the next look may be answered
                for source in now:
                    known = readers.get(source.pod)
                    if known is None or (not known.is_alive() and not has_ended):
                        begin = since if known is None else f"{int(LOOK_SECONDS)}s"
                        readers[source.pod] = threading.Thread(
                            target=read, args=(source, begin), daemon=True
                        )
                        readers[source.pod].start()
                first = False
            yield from _arrived(lines)
            if has_ended and lines.empty() and not any(r.is_alive() for r in readers.values()):
                return
    finally:
        stop.set()


def _arrived(lines: queue.Queue[Line]) -> Iterator[Line]:
    """What comes within the time of a look."""
    try:
        yield lines.get(timeout=LOOK_SECONDS)
        while True:
            yield lines.get_nowait()
    except queue.Empty:
        return
