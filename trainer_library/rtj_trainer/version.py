"""The release that this library belongs to; `make generate` writes it."""

RELEASE = "0.1.0"
