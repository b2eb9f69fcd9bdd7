#!/usr/bin/env bash
# Makes the heads of this folder anew: data, training, and what is shipped of it. With --time the clock decides
# how many steps there are, so they are never the same to the bit.
#   models/heads/train.sh DATA_DIR WORK [data|eagle3|p-eagle|medusa|draft|coder ...]
# DATA_DIR holds gsm8k/train.jsonl, mbpp/mbpp.jsonl, gutenberg/, wikitext-2/ and, for EAGLE-3, instruct-prompts/. WORK takes
# 80 GB. Each part can be interrupted, and the same command goes on. Without names it does all of them, one after the
# other. EAGLE-3 is for a GPU and a build for it (docs/training.md); with AERIE_DEVICE=cpu it takes a day.
set -euo pipefail

if (($# < 2)); then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sets=$(cd "$1" && pwd)
mkdir -p "$2"
cd "$2"
shift 2
if (($# == 0)); then set -- data eagle3 p-eagle medusa draft coder; fi

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

# leave_out FILE: without the prompts that say what a set for evaluation says.
leave_out() {
  "$prompts/check_overlap.py" "$sets" "$1" | sed -n 's/^[^:]*:\([0-9]*\):.*/\1d/p' | sed -f - "$1" || true
}

# Prompts of more kinds, among them those that the model writes itself.
make_more_prompts() {
  local server
  "$prompts/make_prompts.py" --passages "$sets" passages --per-source 400
  mkdir -p more
  grep '"prompt"' "$prompts/code.jsonl" >more/code_plain.jsonl
  python3 - "$sets/instruct-prompts/prompts.jsonl" >more/instruct.jsonl <<'EOF'
import json, sys
for record in map(json.loads, open(sys.argv[1], encoding="utf-8")):
    print(json.dumps({"turns": [record["prompt"]]}))
EOF
  "$aerie" serve -m "$model" --port 8765 --cache-tokens 24000 &
  server=$!
  trap 'kill "$server"' EXIT
  until python3 -c 'import urllib.request as u; u.urlopen("http://localhost:8765/health")' 2>/dev/null; do sleep 1; done
  "$prompts/self_prompts.py" http://localhost:8765 more/self.jsonl --count 5911
  kill "$server"
  trap - EXIT
  leave_out more/self.jsonl >more/self-clean.jsonl
}

make_eagle3() {
  local device=${AERIE_DEVICE:-cuda:0}
  make_more_prompts
  "$aerie" train data -m "$model" --out all --prompts "$sets/mbpp/mbpp.jsonl" "$sets/gsm8k/train.jsonl" \
    "$prompts"/{chat,code}.jsonl more/code_plain.jsonl "$prompts"/{text,translate,questions}.jsonl more/self-clean.jsonl \
    passages/passages.jsonl more/instruct.jsonl --where task_id=601..974 --plain more/code_plain.jsonl \
    --device "$device" --engines 10 --batch 64 --context 1280 --held-out 0.01 --features 2,15,27,30 \
    --temperature 0,1,0,0.8 --samples 2 --seed 2
  "$aerie" train eagle3 -m "$model" --data all --data-notes "$heads/data-eagle3.md" --out eagle3 --features stored \
    --device "$device" --precision bf16 --draft-vocab 16384 --fc-norm --intermediate 4096 --ttt-steps 5 --ttt-from 0.3 \
    --batch-tokens 16384 --learning-rate 1.4e-3 --warmup 0.03 --max-length 1280 --log-steps 50 --time 180s
  # In 4 bits, as it is stored and drafts.
  "$aerie" train data -m "$model" --out further --prompts "$prompts"/{questions,chat,code}.jsonl "$sets/gsm8k/train.jsonl" \
    more/instruct.jsonl --limit 520 --temperature 0,1 --features 2,15,27,30 --held-out 0.06 --seed 5
  "$aerie" train eagle3 -m "$model" --data further --data-notes "$heads/data-eagle3.md" --out rounded --features stored \
    --continue eagle3/final --draft-type q4_0 --precision bf16 --batch-tokens 2048 --ttt-steps 4 --learning-rate 2e-4 \
    --time 260s --eval-prompts 24
  "$aerie" convert rounded/best "$heads/$name-EAGLE3" --type q4_0
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

# For another model, by the one command that does all of it.
make_coder() {
  local coder=qwen2.5-coder-1.5b-instruct
  "$root/scripts/fetch_model.sh" qwen2.5-coder-1.5b
  "$prompts/mbpp_prompts.py" "$sets/mbpp/mbpp.jsonl" mbpp-all.jsonl
  leave_out mbpp-all.jsonl >mbpp.jsonl
  grep '"category": "coding"' "$prompts/chat.jsonl" >coding.jsonl
  "$aerie" speedup -m "models/$coder-q4_k_m.gguf" --out coder --budget 60m --prompts "$prompts/code.jsonl" mbpp.jsonl coding.jsonl \
    --draft-vocab 4608 --intermediate 1280 --type q4_0
  rm -rf "$heads/Qwen2.5-Coder-1.5B-Instruct-EAGLE3"
  cp -r coder/head "$heads/Qwen2.5-Coder-1.5B-Instruct-EAGLE3"
}

for part; do
  case "$part" in
    data | eagle3 | medusa | draft | coder) "make_$part" ;;
    p-eagle) make_p_eagle ;;
    *)
      echo "train.sh: there is no part '$part'" >&2
      exit 2
      ;;
  esac
done
