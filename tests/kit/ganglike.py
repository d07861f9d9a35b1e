"""Two pods of one gang without Kubernetes, at addresses of their own as pods have them."""

from __future__ import annotations

from pathlib import Path

from rtj_api.contract import NO_RANK
from rtj_api.rules.resume import Chosen, Facts, choose
from rtj_api.wire import Phase, Report, Resume, SidecarPhase

from kit import toy_trainer
from kit.podlike import PodLike, free_port, make_pod

HOLDER, OTHER, SPARE = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Gang:
    """Rank 0 and rank 1 on loopback addresses of their own, as pods have them; or, on the host's
    network, at one address with ports of their own."""

    def __init__(self, directory: Path, *, one_host: bool = False, **options: object) -> None:
        self.directory = directory
        port = free_port()
        self.ports = (port, free_port() if one_host else port)
        self.addresses = (HOLDER, HOLDER if one_host else OTHER)
        self.options = options
        self.made: list[PodLike] = []
        self.ranks = [self.make(0, 1), self.make(1, 1)]

    def make(self, rank: int, made_in: int) -> PodLike:
        pod = make_pod(
            self.directory,
            store=self.directory / "store",
            rank=rank,
            made_in=made_in,
            port=self.ports[rank],
            address=self.addresses[rank],
            environment={"RANK": str(rank)},
            **self.options,  # type: ignore[arg-type]
        )
        self.made.append(pod)
        return pod.start()

    def spare(self, *, plays: int, made_in: int = 1) -> PodLike:
        """A pod that waits; it is that rank's once it stands in `ranks` and is directed."""
        pod = make_pod(
            self.directory,
            store=self.directory / "store",
            rank=NO_RANK,
            spare=0,
            made_in=made_in,
            port=self.ports[0],
            address=SPARE,
            pod_volume=True,
            **self.options,  # type: ignore[arg-type]
        )
        pod.plays = plays
        self.made.append(pod)
        return pod.start()

    def direct(self, phase: Phase, attempt: int, **options: object) -> None:
        at = {"coordinator": self.ranks[0].address, "coordinator_port": self.ports[0]}
        for pod in self.ranks:
            pod.direct(phase, attempt, world_size=2, **at, **options)  # type: ignore[arg-type]

    def until(self, phase: SidecarPhase, attempt: int) -> list[Report]:
        reports = [pod.until_phase(phase, attempt, seconds=60) for pod in self.ranks]
        assert [r.phase for r in reports] == [phase, phase], [r.problem for r in reports]
        return reports

    def begin(self) -> None:
        self.direct(Phase.PREPARE, 1)
        self.until(SidecarPhase.PREPARED, 1)
        scratch = Resume(scratch=True)
        self.direct(Phase.RESTORE, 1, resume=scratch)
        self.until(SidecarPhase.RESTORED, 1)
        self.direct(Phase.GO, 1, resume=scratch)

    def slow_path(self, attempt: int) -> Resume:
        self.direct(Phase.PREPARE, attempt)
        reports = self.until(SidecarPhase.PREPARED, attempt)
        chosen = choose(
            Facts(
                run="ns/gpt",
                world_size=2,
                candidates=reports[0].candidates,
                listed=bool(reports[0].listed),
                pinned={r.rank: r.pinned for r in reports},
                shares={r.rank: r.shares for r in reports},
                urls={rank: pod.url for rank, pod in enumerate(self.ranks)},
                ever_durable=True,
            )
        )
        assert isinstance(chosen, Chosen), chosen
        resume = chosen.resume
        self.direct(Phase.RESTORE, attempt, resume=resume)
        self.until(SidecarPhase.RESTORED, attempt)
        self.direct(Phase.GO, attempt, resume=resume)
        return resume

    def finish(self) -> list[Report]:
        reports = [
            pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60) for pod in self.ranks
        ]
        steps = self.steps
        for pod in self.ranks:
            assert f"RESULT {steps} {toy_trainer.expected(steps)}" in pod.output()
        return reports

    @property
    def steps(self) -> int:
        return int(self.ranks[0].command[self.ranks[0].command.index("--steps") + 1])

    def end(self) -> None:
        for pod in self.made:
            pod.end()
