# A signal that is there already.
# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
env --block-signal=INT true 2>/dev/null || { echo "env has no --block-signal" >&2; exit 77; }
# shellcheck disable=SC2016
env --block-signal=INT sh -c 'kill -INT $$; exec ebb eval model=model dataset=data.jsonl'
