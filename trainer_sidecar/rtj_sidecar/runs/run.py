"""One run's history in a store, as the agent uses it: the facade over this package.

All methods are synchronous and safe to call from several threads; the agent runs them in threads.
Every failure of the store is a `stores.base.StoreProblem` (reason, message with the remedy,
`transient`); every other outcome is a returned value, never an exception. It must never publish
without the highest fence, and never change a record that another decision may rest on.

    run = Run(store=open_store(url, …), run_id="ns/name", cluster_uid=…, job_uid=…, rank=0,
              union_gate=…, now=time.time)

holder (rank 0)
    claim(*, attempt, world_size, may_claim=False) -> Claimed(fence: int, record) |
        OwnedByOther(owner: str, fence: int, complete: bool) | Superseded(attempt: int, fence: int)
        Idempotent for one attempt. Probes the store and writes run.json the first time.
    claim_next(*, held, attempt, world_size, parent: Parent) -> Claimed | FenceTaken(fence, owner)
        The fast path: exactly held + 1, with its parent, or nothing.
    history() -> History            one listing, as pure data; fine for any rank
    candidates(history) -> list[wire.Candidate]      newest first, also ships not durable yet
    position_of(history, name) -> Parent             to hand to set_parent
    roll_forward(history, *, fence) -> RolledForward(committed: [name], dropped: [(name, why)],
        history: History)            completes what earlier fences of this lineage left
    set_parent(*, fence, parent: Parent) -> Done | FenceLost(by: int)          before the go
    set_outcome(*, fence, outcome: Outcome) -> Done | FenceLost
    name_ship(*, fence, n, save: SaveFacts, seen: Mapping[int, Collection[str]], world_size,
        parent: Parent | None) -> Named(ship: ShipRecord) | Ignored(message) | FenceLost
        `n` from next_n(history, fence) at claim, then counted by the agent. `seen`: rank -> paths.
        Ignored = CheckpointIgnored: the save lies below the one that this attempt resumed from.
        Calling it again with the same arguments is harmless.
    try_commit(ship, *, fence) -> Committed(manifest) | Waiting(ranks: [int]) | Dropped(why) |
        Ignored(message) | FenceLost(by)            call after each part; the manifest is last
    vet(candidates, *, pinned: Collection[str], incoming: Path | None, progress, cancel)
        -> list[wire.Candidate]      newest first until one is proved whole; bad ones get marked
        (wire.Candidate.invalid set). `incoming` given: what no rank has pinned is fetched there,
        below incoming/<name>/, and hashed, so that restore reads nothing twice.
    retain(*, fence, keep_last, in_use: Collection[str]) -> Retained(marked, deleted)
every rank
    read_ships(*, fence, since=0) -> list[ShipRecord]
    upload_part(ship, *, files: Sequence[LocalFile], save: SaveFacts, progress, cancel)
        -> PartRecord
        LocalFile(path, source: Path, size, mode, alias=False); `path` relative, `source` the pin.
        Raises SourceChanged (file) when a file is not what it was: answer_none it then.
    answer_none(ship, *, why) -> PartRecord
    part(ship_fence, n, rank) -> PartRecord | None
    manifest(name) -> ManifestRecord | None
    wanted(name) -> list[FileRecord]      what this rank has to restore (all, but others' own files)
    fetch(name, dest: Path, *, files: Collection[str] | None = None, peers: Sequence[str] = (),
        progress, cancel) -> Fetched(files, bytes_from_peers, bytes_from_store) |
        FetchFailed(reason, message, evidence)      hashed while it streams, fsynced; a file that
        is already there with the right hash is kept. For a save without manifest: from peers only,
        expected hashes from parts.
    mark(name, *, kind, reason, message, evidence) -> key
    put_text(key, text)                   logs/<attempt>/<rank>.txt and the like
`progress(bytes_done_since_last_call: int)`, `cancel: threading.Event` -> raises Cancelled.
"""
