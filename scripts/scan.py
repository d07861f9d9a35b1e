"""`make scan`: what scanners find in the Dockerfile, the chart, the workflows and the requirements.

Each scanner runs as its makers publish it, against what a user installs. One that cannot run here,
because it is not installed or its database cannot be reached, is named with the reason and never
counted as clean: `--strict`, as the release's workflow has it, makes that a failure. Must never
hide a finding: what is accepted stands in ACCEPTED with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kit import tools

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "resumable-training-operator"
VENV = Path(os.environ.get("RTJ_CACHE", Path.home() / ".cache" / "rtj")) / "scan-venv"
SHIPPED = ("operator", "sidecar", "sidecar-stores", "sidecar-hdfs")
# What a cluster with rules of its own installs: see docs/security.md.
HARDENED = {
    "image.digest": f"sha256:{'0' * 64}",
    "sidecar.image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "networkPolicy.enabled": "true",
}
# A finding that stays, and why.
ACCEPTED = {
    "CKV_K8S_11": "no CPU limit on the operator: a throttled one finds faults late",
    "CKV_DOCKER_2": "Kubernetes asks the containers by probes; it reads no HEALTHCHECK",
    "CKV_DOCKER_7": "BASE is an argument with a tag, which checkov takes for none",
}
MAX_CHECKOV = 1  # findings of the chart


class CannotRun(Exception):
    """Why a scanner says nothing here."""


@dataclass(frozen=True)
class Found:
    """`bad`: what has to be mended. `accepted`: what is known and stays."""

    bad: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()


def program(name: str) -> str:
    """The scanner of the scan environment, else of the PATH. Raises CannotRun."""
    inner = VENV / "bin" / name
    found = str(inner) if inner.exists() else shutil.which(name)
    if found is None:
        raise CannotRun(f"{name} is not installed (scripts/setup scan brings all but trivy)")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=ROOT, text=True, capture_output=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired as late:
        raise CannotRun(f"{Path(command[0]).name} did not end within 15 minutes") from late


def hadolint() -> Found:
    done = run(program("hadolint"), "--no-color", "Dockerfile")
    return Found(bad=tuple(done.stdout.splitlines()))


def rendered(directory: Path) -> Path:
    command = [str(tools.helm()), "template", "rto", str(CHART), "--namespace", "rtj-system"]
    for key, value in HARDENED.items():
        command += ["--set-string" if "digest" in key else "--set", f"{key}={value}"]
    done = run(*command)
    if done.returncode:
        raise CannotRun(f"helm template: {done.stderr.strip()[-300:]}")
    path = directory / "chart.yaml"
    path.write_text(done.stdout)
    return path


def checkov() -> Found:
    bad: list[str] = []
    accepted: list[str] = []
    with tempfile.TemporaryDirectory() as held:
        targets = (
            ("kubernetes", "-f", str(rendered(Path(held)))),
            ("dockerfile", "-f", "Dockerfile"),
            ("github_actions", "-d", ".github"),
        )
        for framework, how, place in targets:
            options = ("--framework", framework, "--output", "json", "--quiet", "--skip-download")
            done = run(program("checkov"), how, place, *options)
            for check in failed_checks(done.stdout, what=framework):
                text = f"{check['check_id']} {check['check_name']}: {check['resource']}"
                (accepted if check["check_id"] in ACCEPTED else bad).append(text)
            of_chart = framework == "kubernetes" and len(accepted) > MAX_CHECKOV
            if of_chart:
                bad.append(f"{len(accepted)} findings of the chart are accepted, one may be")
    return Found(tuple(bad), tuple(accepted))


def failed_checks(text: str, *, what: str) -> list[dict[str, str]]:
    """Of checkov's JSON. Raises CannotRun where it checked nothing."""
    try:
        told = json.loads(text)
    except ValueError:
        raise CannotRun(f"checkov said nothing that can be read of {what}") from None
    told = told if isinstance(told, list) else [told]
    if not any(each.get("summary", {}).get("passed") for each in told):
        raise CannotRun(f"checkov found nothing to check of {what}")
    return [check for each in told for check in each["results"]["failed_checks"]]


def pip_audit() -> Found:
    bad: list[str] = []
    for name in SHIPPED:
        done = run(
            program("pip-audit"),
            *("--requirement", f"requirements/{name}.txt", "--no-deps", "--disable-pip"),
            *("--format", "json", "--progress-spinner", "off"),
        )
        bad += vulnerable(done.stdout, error=done.stderr, name=name)
    return Found(bad=tuple(bad))


def vulnerable(text: str, *, error: str, name: str) -> list[str]:
    """Of pip-audit's JSON. Raises CannotRun where it knows nothing of some package."""
    try:
        packages = json.loads(text)["dependencies"]
    except (ValueError, KeyError):
        raise CannotRun(f"pip-audit: {(error.strip().splitlines() or ['no words'])[-1]}") from None
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    if unknown or not packages:
        raise CannotRun(
            f"pip-audit: the index answers no question about {len(unknown)} of {len(packages)} "
            f"packages of {name}.txt"
        )
    return [
        f"{each['name']} {each['version']}: {vuln['id']} (mended in {vuln['fix_versions']})"
        for each in packages
        for vuln in each["vulns"]
    ]


def trivy(*arguments: str) -> Found:
    done = run(program("trivy"), *arguments, "--format", "json", "--quiet", "--exit-code", "0")
    if done.returncode:
        raise CannotRun(f"trivy {arguments[0]}: {done.stderr.strip()[-300:]}")
    bad = []
    for result in json.loads(done.stdout).get("Results") or []:
        for each in [
            *(result.get("Vulnerabilities") or []),
            *(result.get("Misconfigurations") or []),
            *(result.get("Secrets") or []),
        ]:
            what = each.get("VulnerabilityID") or each.get("ID") or each.get("RuleID")
            bad.append(f"{each.get('Severity')} {what} {each.get('Title', '')}: {result['Target']}")
    return Found(bad=tuple(bad))


def trivy_config() -> Found:
    with tempfile.TemporaryDirectory() as held:
        rendered(Path(held))
        shutil.copy(ROOT / "Dockerfile", held)
        return trivy("config", held, "--severity", "HIGH,CRITICAL", "--skip-check-update")


def trivy_packages() -> Found:
    return trivy("fs", "requirements", "--scanners", "vuln,secret", "--severity", "HIGH,CRITICAL")


SCANS: dict[str, Callable[[], Found]] = {
    "hadolint": hadolint,
    "checkov": checkov,
    "trivy config": trivy_config,
    "trivy packages": trivy_packages,
    "pip-audit": pip_audit,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make scan", description="Run every scanner.")
    parser.add_argument("--strict", action="store_true", help="one that cannot run is a failure")
    options = parser.parse_args(arguments)
    failed = False
    for name, scan in SCANS.items():
        try:
            found = scan()
        except CannotRun as why:
            print(f"NOT RUN  {name}: {why}")
            failed |= options.strict
            continue
        print(f"{'FOUND   ' if found.bad else 'clean   '} {name}")
        for text in found.bad:
            print(f"           {text}")
        for text in found.accepted:
            print(f"           accepted: {text} ({ACCEPTED[text.split()[0]]})")
        failed |= bool(found.bad)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
