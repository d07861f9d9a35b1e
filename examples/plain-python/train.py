"""Linear regression by stochastic gradient descent, in plain Python: the smallest trainer there is.

python train.py --out checkpoints --steps 1000
python train.py --out checkpoints --steps 1000 --resume checkpoints/state_000500.json
"""

import argparse
import hashlib
import json
import random
import time
from pathlib import Path


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("/checkpoints"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--resume", type=Path, help="a state file to go on from")
    return parser.parse_args()


def main():
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    step, weight, bias, samples = 0, 0.0, 0.0, random.Random(1)
    if args.resume:
        state = json.loads(args.resume.read_text())
        step, weight, bias = state["step"], state["weight"], state["bias"]
        version, internal, gauss = state["random"]
        samples.setstate((version, tuple(internal), gauss))

    while step < args.steps:
        x = samples.uniform(-1, 1)
        error = weight * x + bias - (3 * x + 1 + samples.gauss(0, 0.1))
        weight -= 0.05 * error * x
        bias -= 0.05 * error
        step += 1
        print(f"step {step}/{args.steps} loss {error * error:.4f}", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            state = {"step": step, "weight": weight, "bias": bias, "random": samples.getstate()}
            (args.out / f"state_{step:06d}.json").write_text(json.dumps(state))
        time.sleep(args.step_seconds)
    digest = hashlib.sha256(repr((weight, bias)).encode()).hexdigest()
    print(f"final weights sha256 {digest}")


if __name__ == "__main__":
    main()
