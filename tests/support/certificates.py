"""Certificates for tests, made by openssl: authorities and what they sign. Nothing of them is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def authority(folder: Path, name: str) -> Path:
    """Make ``name``.pem and ``name``.key, an authority of its own. Gives the certificate."""
    _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
             "-out", f"{name}.pem", folder=folder)  # fmt: skip
    return folder / f"{name}.pem"


def signed(folder: Path, name: str, by: str) -> Path:
    """Make ``name``.pem and ``name``.key for 127.0.0.1, signed by that authority's files."""
    _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
             "-out", f"{name}.csr", folder=folder)  # fmt: skip
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    _openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key",
             "-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem",
             folder=folder)  # fmt: skip
    return folder / f"{name}.pem"


def _openssl(*words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
