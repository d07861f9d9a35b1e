"""The rows of `rtj_api.reason_texts`, one module a section of docs/reasons.md."""
