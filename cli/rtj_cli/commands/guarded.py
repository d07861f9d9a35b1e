"""From what can go wrong to words and an exit code: the same for every command on a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtj_api.reasons import Reason
from rtj_sidecar.checkpoints.layouts import UnknownLayoutError
from rtj_sidecar.stores.base import SourceChanged, StoreProblem

from rtj_cli.cluster import ClusterProblem
from rtj_cli.saves import Refused
from rtj_cli.targets import NoTarget
from rtj_cli.telling import Code, fail

_USAGE = (Reason.INVALID_SPEC, Reason.STORE_SCHEME_UNKNOWN)
_NOT_FOUND = (Reason.BUCKET_MISSING,)
_REFUSED = (Reason.FENCE_TAKEN, Reason.CHECKPOINT_ARCHIVED)


@contextmanager
def guarded() -> Iterator[None]:
    """Ends the command with one line of words, never with a trace."""
    try:
        yield
    except (Refused, NoTarget, ClusterProblem) as error:
        raise fail(str(error), error.code) from None
    except UnknownLayoutError as error:
        raise fail(str(error), Code.USAGE) from None
    except SourceChanged as error:
        raise fail(f"{error}: wait until its writer has ended", Code.REFUSED) from None
    except StoreProblem as problem:
        code = Code.UNREACHABLE
        if problem.reason in _USAGE:
            code = Code.USAGE
        elif problem.reason in _NOT_FOUND:
            code = Code.NOT_FOUND
        elif problem.reason in _REFUSED:
            code = Code.REFUSED
        raise fail(f"{problem.reason}: {problem.message}", code) from None
    except FileNotFoundError as error:
        raise fail(f"{error.filename}: {error.strerror}", Code.NOT_FOUND) from None
    except OSError as error:
        raise fail(f"{error.filename or 'local disk'}: {error.strerror}", Code.REFUSED) from None
    except KeyboardInterrupt:
        raise fail("interrupted; do it again to go on", Code.INTERRUPTED) from None
