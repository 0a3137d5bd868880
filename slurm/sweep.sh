#!/bin/bash
# A sweep over many checkpoints: one run each, with its own array and its own report job, and one
# last job that reports all of them together. Call it on a login node; it submits and returns.
#
#     slurm/sweep.sh night.yaml checkpoints.txt --tasks 8 --partition gpu
#
# checkpoints.txt holds one folder or Hub id a line. night.yaml says everything else; its `run` is
# the beginning of each run's name. What follows goes to `rel-batch slurm submit`.
set -euo pipefail

config=${1:?give a config} checkpoints=${2:?give a file of checkpoints}
shift 2

name=$(basename "$config" .yaml)
runs=() reports=()
while read -r checkpoint; do
    [[ -n $checkpoint && $checkpoint != \#* ]] || continue
    # Qwen/Qwen3-8B -> night-Qwen3-8B
    run=$name-$(basename "$checkpoint" | tr -c 'A-Za-z0-9._\n-' '-')
    ids=$(rel-batch slurm submit "$config" --parsable "$@" \
        --set "run=$run" --set "model.path=$checkpoint" </dev/null)
    runs+=("outputs/$run")
    # Empty for a run that was complete already.
    [[ -z $ids ]] || reports+=("${ids##* }")
    echo "$run: ${ids:-complete}"
done <"$checkpoints"

# Whatever becomes of single runs: what there is is compared.
after=$(IFS=:; echo "${reports[*]}")
sbatch --job-name="$name-all" --ntasks=1 --cpus-per-task=4 --time=1:00:00 --open-mode=append \
    --output="$name-all-%j.log" --kill-on-invalid-dep=yes ${after:+--dependency=afterany:$after} \
    --wrap "rel-batch report ${runs[*]@Q} -o outputs/$name-all" </dev/null
