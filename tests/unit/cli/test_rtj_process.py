"""The command as a person uses it: real processes, a directory as the store."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.podlike import ENVIRONMENT
from kit.supervised import wait_for

RTJ = [sys.executable, "-m", "rtj_cli"]


def run_words(tmp_path: Path, *trainer: str, options: tuple[str, ...] = ()) -> list[str]:
    return [
        *RTJ,
        "run",
        *("--store", f"file://{tmp_path}/store", "--path", str(tmp_path / "out")),
        *("--poll", "0.1", "--run-id", "me/toy", "--grace", "5"),
        *("--resume-arg", "--resume", "--resume-arg", "$(RTJ_RESUME_CHECKPOINT)"),
        *options,
        "--",
        *trainer,
    ]


def toy(tmp_path: Path, *options: str, steps: int = 100) -> list[str]:
    return [
        *(sys.executable, "-u", str(Path(toy_trainer.__file__))),
        *("--dir", str(tmp_path / "out"), "--steps", str(steps), "--every", "10"),
        *options,
    ]


def call(words: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
        **options,  # type: ignore[call-overload]
    )


def test_a_crash_is_restarted_resumed_and_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    done = call(run_words(tmp_path, *toy(tmp_path, "--crash-at", "55")))
    assert done.returncode == 0, done.stderr
    assert f"RESULT 100 {toy_trainer.expected(100)}" in done.stdout
    assert "at step 50" in done.stdout
    assert "resumes in place from f1-n" in done.stderr
    assert "RuntimeError: crash at step 55" in done.stderr
    again = call(run_words(tmp_path, *toy(tmp_path)))
    assert again.returncode == 0
    assert "complete" in again.stderr
    assert "RESULT" not in again.stdout


def test_a_second_invocation_elsewhere_resumes_from_the_store(tmp_path: Path) -> None:
    options = ("--max-restarts", "0")
    done = call(run_words(tmp_path, *toy(tmp_path, "--crash-at", "55"), options=options))
    assert done.returncode == 1
    assert "no restart is left" in done.stderr
    (tmp_path / "out").rename(tmp_path / "lost")
    done = call(run_words(tmp_path, *toy(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert f"RESULT 100 {toy_trainer.expected(100)}" in done.stdout
    assert re.search(r"resumes from f1-n\d+-s50", done.stderr)


def test_a_run_that_begins_from_anothers_checkpoints_does_so_once(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for step in (10, 20):
        whole = {"step": step, "value": toy_trainer.expected(step), "model": {"weight": b"w" * 99}}
        whole["optimizer"] = {"state": {}, "param_groups": []}
        toy_trainer.save(old / f"ckpt_{step}.pt", whole)
    options = ("--resume-from", str(old), "--max-restarts", "0")
    done = call(run_words(tmp_path, *toy(tmp_path, "--crash-at", "0", steps=40), options=options))
    assert done.returncode == 0, done.stderr
    assert "resumes from f1-n1-s20" in done.stderr
    assert f"RESULT 40 {toy_trainer.expected(40)}" in done.stdout
    again = call(
        run_words(tmp_path, *toy(tmp_path, steps=60), options=(*options, "--again", "--take-over"))
    )
    assert f"RESULT 60 {toy_trainer.expected(60)}" in again.stdout, again.stderr
    assert "at step 40" in again.stdout, "the value has acted and acts no more"


def test_ctrl_c_is_passed_on_and_the_last_save_becomes_durable(tmp_path: Path) -> None:
    words = run_words(tmp_path, *toy(tmp_path, steps=5000))
    output = tmp_path / "output"
    with open(output, "wb") as file:
        running = subprocess.Popen(
            words, stdout=file, stderr=file, env=ENVIRONMENT, start_new_session=True
        )
    try:
        wait_for(lambda: "step 35 " in output.read_text(), seconds=60)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(60) in (1, 130)
    finally:
        if running.poll() is None:
            running.kill()
    text = output.read_text()
    assert "KeyboardInterrupt" in text
    assert "stopped as asked" in text
    saved = max(int(f.stem.split("_")[1]) for f in (tmp_path / "out").glob("ckpt_*.pt"))
    manifests = (tmp_path / "store/me/toy/manifests").glob("*.json")
    assert max(json.loads(f.read_text())["step"] for f in manifests) == saved
    done = call(run_words(tmp_path, *toy(tmp_path, steps=saved + 20)))
    assert f"at step {saved}" in done.stdout
    assert done.returncode == 0


def test_killed_without_warning_it_goes_on_the_next_time(tmp_path: Path) -> None:
    words = run_words(tmp_path, *toy(tmp_path, steps=5000))
    output = tmp_path / "output"
    with open(output, "wb") as file:
        running = subprocess.Popen(
            words, stdout=file, stderr=file, env=ENVIRONMENT, start_new_session=True
        )
    manifests = tmp_path / "store/me/toy/manifests"
    wait_for(lambda: list(manifests.glob("*.json")), seconds=60)
    running.kill()
    running.wait(60)
    done = call(run_words(tmp_path, *toy(tmp_path, "--step-seconds", "0.002", steps=900)))
    assert done.returncode == 0, done.stderr
    assert f"RESULT 900 {toy_trainer.expected(900)}" in done.stdout
    assert "resumed from" in done.stdout


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    words = run_words(tmp_path, *toy(tmp_path, steps=5000))
    running = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        wait_for(lambda: (tmp_path / "out/.rtj/local/run/supervisor.json").exists(), seconds=60)
        second = call(words)
        assert second.returncode == 75
        assert "another `rtj run`" in second.stderr
    finally:
        os.kill(running.pid, signal.SIGTERM)
        running.wait(60)


def test_another_jobs_run_needs_a_word(tmp_path: Path) -> None:
    done = call(
        run_words(tmp_path, *toy(tmp_path, "--crash-at", "55"), options=("--max-restarts", "0"))
    )
    fence = next((tmp_path / "store/me/toy/fences").glob("*.json"))
    record = json.loads(fence.read_text())
    assert record.pop("outcome") == "released"
    fence.write_text(json.dumps(record))  # as after kill -9, when nobody could say so
    (tmp_path / "out").rename(tmp_path / "lost")
    done = call(run_words(tmp_path, *toy(tmp_path)))
    assert done.returncode == 75
    assert "--take-over" in done.stderr
    done = call(run_words(tmp_path, *toy(tmp_path), options=("--take-over",)))
    assert done.returncode == 0
    assert f"RESULT 100 {toy_trainer.expected(100)}" in done.stdout


def test_nothing_valid_left_is_held_until_allowed(tmp_path: Path) -> None:
    call(run_words(tmp_path, *toy(tmp_path, "--crash-at", "25"), options=("--max-restarts", "0")))
    for file in (tmp_path / "store/me/toy/checkpoints").rglob("*.pt"):
        file.write_bytes(b"x")
    (tmp_path / "out").rename(tmp_path / "lost")
    done = call(run_words(tmp_path, *toy(tmp_path)))
    assert done.returncode == 75
    assert "NoValidCheckpoint" in done.stderr
    assert "starting at step 0" not in done.stdout
    done = call(run_words(tmp_path, *toy(tmp_path), options=("--allow-scratch",)))
    assert done.returncode == 0
    assert "starting at step 0" in done.stdout


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--store", "gopher://x"), "unknown scheme"),
        (("--store", "s3://"), "names no bucket"),
        (("--layout", "floppy"), "unknown"),
        (("--path", "/proc/nothing"), "--path"),
    ],
)
def test_wrong_usage_names_the_option(tmp_path: Path, options: tuple[str, ...], word: str) -> None:
    done = call(run_words(tmp_path, "true", options=options))
    assert done.returncode == 2
    assert word in done.stderr


def test_inspect_says_what_is_valid_and_why(tmp_path: Path) -> None:
    done = call(run_words(tmp_path, *toy(tmp_path, steps=40)))
    assert done.returncode == 0
    table = call([*RTJ, "inspect", str(tmp_path / "out")])
    assert table.returncode == 0
    assert "ckpt_40.pt ←" in table.stdout
    rows = json.loads(call([*RTJ, "inspect", f"file://{tmp_path}/store", "-o", "json"]).stdout)
    assert rows[0]["step"] == 40
    assert rows[0]["current"]
    assert rows[0]["run"] == "me/toy"
    key = next((tmp_path / "store/me/toy/checkpoints").glob("*-s40/*.pt"))
    content = bytearray(key.read_bytes())
    content[50] ^= 1
    key.write_bytes(content)
    deep = call([*RTJ, "inspect", f"file://{tmp_path}/store", "--deep", "-o", "json"])
    assert deep.returncode == 1
    rows = json.loads(deep.stdout)
    assert rows[0]["valid"] is False
    assert "ckpt_40.pt" in rows[0]["why"]
    (tmp_path / "out/ckpt_40.pt").write_bytes(content[:100])
    local = call([*RTJ, "inspect", str(tmp_path / "out"), "-o", "json"])
    assert local.returncode == 1
    by_step = {row["name"]: row for row in json.loads(local.stdout)}
    assert by_step["ckpt_40.pt"]["valid"] is False
    assert by_step["ckpt_30.pt"]["current"]


def test_inspect_of_nothing(tmp_path: Path) -> None:
    for target in (str(tmp_path / "none"), f"file://{tmp_path}", "gopher://x"):
        done = call([*RTJ, "inspect", target])
        assert done.returncode == 2
        assert done.stderr.startswith("rtj: ")


def test_help_shows_exit_codes_and_an_example() -> None:
    text = call([*RTJ, "run", "--help"]).stdout
    assert "Exit codes" in text
    assert "RTJ_RESUME_CHECKPOINT" in text
    assert "inspect" in call([*RTJ, "--help"]).stdout
