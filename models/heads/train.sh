#!/usr/bin/env bash
# Makes the heads of this folder anew: data, training, and what is shipped of it. With --time the clock decides
# how many steps there are, so they are never the same to the bit.
#   models/heads/train.sh DATA_DIR WORK [data|eagle3|p-eagle|medusa|draft ...]
# DATA_DIR holds gsm8k/train.jsonl, mbpp/mbpp.jsonl, gutenberg/ and wikitext-2/. WORK takes 10 GB. Each part can be
# interrupted, and the same command goes on. Without names it does all of them, one after the other.
set -euo pipefail

if (($# < 2)); then
  sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sets=$(cd "$1" && pwd)
mkdir -p "$2"
cd "$2"
shift 2
if (($# == 0)); then set -- data eagle3 p-eagle medusa draft; fi

aerie=$root/build/release/bin/aerie
prompts=$root/train/prompts
heads=$root/models/heads
name=SmolLM2-135M-Instruct
ln -sfn "$root/models" models
model=models/$name.Q4_1.gguf
answer=(-m "$model" --temperature "0,0,1" --seed 1 --held-out 0.02)
train_any=(-m "$model" --data own gsm mbpp --data-notes models/heads/data.md
  --save-every 4m --validation-tokens 8192 --eval-prompts 24 --eval-tokens 96)
train=("${train_any[@]}" --threads 1 --batch-tokens 1024)

make_data() {
  "$prompts/make_prompts.py" --passages "$sets" passages
  "$aerie" train data "${answer[@]}" --out mbpp --prompts "$sets/mbpp/mbpp.jsonl" --where task_id=601..974
  "$aerie" train data "${answer[@]}" --out gsm --prompts "$sets/gsm8k/train.jsonl" --limit 3000
  "$aerie" train data "${answer[@]}" --out own \
    --prompts "$prompts"/{chat,code,text,translate,questions}.jsonl passages/passages.jsonl
  for folder in mbpp gsm own; do
    "$aerie" train data -m "$model" --out "$folder" --features 2,15,27,30
  done
}

# On one token first, which is three times as fast, then on the head's own outputs.
make_first() {
  "$aerie" train eagle3 "${train[@]}" --out first --draft-vocab 4096 --ttt-steps 1 --fc-norm \
    --learning-rate 7e-4 --floor 0.2 --time 40m --eval-every 10m
}

make_eagle3() {
  make_first
  "$aerie" train eagle3 "${train[@]}" --out eagle3 --init first --draft-vocab 4096 --ttt-steps 4 --fc-norm \
    --learning-rate 3e-4 --time 25m --eval-every 8m
  # The shipped head had this stage on a second machine (its card says how): it began with the head of the second
  # stage in 8 bits, and its data had 127 prompts more. 16-bit products are faster on processors with AVX512_BF16.
  "$aerie" train eagle3 "${train_any[@]}" --out eagle3-longer --init eagle3/best --draft-vocab 4096 --ttt-steps 3 \
    --fc-norm --threads 2 --batch-tokens 2048 --precision bf16 --learning-rate 4e-4 --time 68m --eval-every 22m
  "$aerie" convert eagle3-longer/best "$heads/$name-EAGLE3" --type q8_0
}

make_p_eagle() {
  make_first
  "$aerie" train p-eagle "${train[@]}" --out p-eagle --init first/final --draft-vocab 4096 --layers 1 --fc-norm \
    --depth 8 --learning-rate 5e-4 --time 25m --eval-every 8m
  "$aerie" convert p-eagle/best "$heads/$name-P-EAGLE" --type q8_0
}

make_medusa() {
  "$aerie" train medusa "${train[@]}" --out medusa --draft-vocab 4096 --heads 4 --output shared --store-bf16 \
    --loss kl --learning-rate 1e-3 --time 10m --eval-every 5m
  rm -rf "$heads/$name-Medusa"
  cp -r medusa/best "$heads/$name-Medusa"
}

make_draft() {
  "$aerie" train distill "${train[@]}" --out draft --layers 0,1,29 --tied --draft-vocab 6144 --loss kl \
    --learning-rate 5e-4 --time 40m --eval-every 13m
  mkdir -p "$heads/$name-draft"
  "$aerie" convert draft/best "$heads/$name-draft/$name-draft.Q4_0.gguf" --type q4_0
  cp draft/best/README.md "$heads/$name-draft"
}

for part; do
  case "$part" in
    data | eagle3 | medusa | draft) "make_$part" ;;
    p-eagle) make_p_eagle ;;
    *)
      echo "train.sh: there is no part '$part'" >&2
      exit 2
      ;;
  esac
done
