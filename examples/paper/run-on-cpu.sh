#!/bin/sh
# The whole protocol of the paper on the embedded model: examples/paper/run-on-cpu.sh DATA OUT
# DATA is the folder with the real data sets, OUT a new folder for the study; the same command goes on after a stop.
set -eu
here=$(dirname "$0")
python "$here/../../benchmarks/study_data.py" "$1" "$here/../../build/paper-data" --companion 4
[ -e "$2/frozen.json" ] || calibudget study freeze "$here/cpu.yaml" --output-dir "$2"
calibudget study run "$here/cpu.yaml" --output-dir "$2"
calibudget study report "$2"
