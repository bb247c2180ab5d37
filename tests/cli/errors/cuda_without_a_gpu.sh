# SPDX-License-Identifier: Apache-2.0
# What is missing depends on build and machine; where nothing is, there is nothing to refuse. A machine that lacks it is
# exit 4, a build that lacks it is 2.
ebb sft model=m dataset=d.jsonl output_dir=o device=cuda 2>err
code=$?
grep -q 'device: cuda is not to be had' err || { echo "a GPU is here" >&2; exit 77; }
sed -e 's/to be had: .*/to be had: (why)/' err >&2
case $(cat err) in *"CPU backend only"*) [ $code -eq 2 ] && code=4 ;; esac
exit $code
