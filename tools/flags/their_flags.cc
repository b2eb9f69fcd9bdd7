#include "tools/flags/their_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace aerie {
namespace {

using enum TheirValue;
using enum Fate;

constexpr std::string_view kV = "vLLM";
constexpr std::string_view kS = "SGLang";
constexpr std::string_view kVS = "vLLM, SGLang";
constexpr std::string_view kL = "llama.cpp";
constexpr std::string_view kT = "TensorRT-LLM";

constexpr std::string_view kDevices = "of how other programs use graphics processors";
constexpr std::string_view kMachines = "of several processes; here one serves";
constexpr std::string_view kRanks =
    "of several processes; here mpirun starts these, for --tensor-parallel";
constexpr std::string_view kAlways = "it is always so here";
constexpr std::string_view kInner = "of the other program's inner workings";
constexpr std::string_view kFormats = "replies are parsed by what the model's template says";
constexpr std::string_view kSpeed = "it bears on speed alone, and is chosen here";
constexpr std::string_view kLogs = "the log has one form";
constexpr std::string_view kMedia = "of images and sound, which requests cannot have";
constexpr std::string_view kAdapter = "adapters are not applied: merge it into the model";
constexpr std::string_view kTemplate = "messages are formatted by the model's own template";
constexpr std::string_view kRope = "the model's own positions are kept";
constexpr std::string_view kSampler = "there is no such sampler";
constexpr std::string_view kLossy =
    "drafts are kept only where the target would have said the same";
constexpr std::string_view kSeed = "requests give their own seed";
constexpr std::string_view kQuantized =
    "weights are read as the files have them; --type q8_0 converts float weights";

constexpr TheirFlag kFlags[] = {
    // --- vLLM, and what SGLang has under the same name
    {kV, "-tp,--tensor-parallel-size", kOne, kIgnored, "", kRanks},
    {kV, "-pp,--pipeline-parallel-size", kOne, kIgnored, "", kMachines},
    {kV, "-dp,--data-parallel-size,--data-parallel-size-local", kOne, kIgnored, "", kMachines},
    {kV, "--distributed-executor-backend,--nnodes,--node-rank,--master-addr,--master-port", kOne,
     kIgnored, "", kMachines},
    {kV, "-ep,--enable-expert-parallel,--disable-custom-all-reduce", kNone, kIgnored, "",
     kMachines},
    {kV, "--kv-transfer-config", kOne, kIgnored, "", kMachines},
    {kV, "--gpu-memory-utilization", kOne, kAlias, "--gpu-memory"},
    {kV, "--swap-space,--cpu-offload-gb,--kv-cache-memory-bytes", kOne, kIgnored, "", kDevices},
    {kV, "--enforce-eager,--no-enforce-eager", kNone, kIgnored, "", kDevices},
    {kVS, "--attention-backend,--block-size,--page-size", kOne, kIgnored, "", kDevices},
    {kV, "-O,-cc,--compilation-config,--max-seq-len-to-capture,--cudagraph-capture-sizes", kOne,
     kIgnored, "", kDevices},
    {kV, "-O0,-O1,-O2,-O3", kNone, kIgnored, "", kDevices},
    {kVS, "--trust-remote-code", kNone, kIgnored, "", "no code of models is run"},
    {kVS, "--dtype", kOne, kIgnored, "", "weights and activations keep the types of the files"},
    {kVS, "-q,--quantization", kOne, kRefused, "", kQuantized, "none,None"},
    {kVS, "--kv-cache-dtype", kOne, kCacheType},
    {kVS, "--load-format", kOne, kRefused, "", "a model is read from its files",
     "auto,safetensors,pt,gguf"},
    {kV, "--config-format,--model-impl", kOne, kIgnored, "", kInner},
    {kVS, "--revision", kOne, kRefused, "", "write it behind the model's name: ORG/REPO@REVISION",
     "main"},
    {kV, "--code-revision,--tokenizer-revision", kOne, kIgnored, "", kInner},
    {kVS, "--tokenizer,--tokenizer-path,--hf-config-path", kOne, kRefused, "",
     "the model's own is used: leave it out"},
    {kVS, "--tokenizer-mode", kOne, kRefused, "", "the tokenizer is the files'", "auto,hf,slow"},
    {kV, "--hf-overrides,--rope-scaling,--rope-theta", kOne, kRefused, "", kRope},
    {kVS, "--download-dir", kOne, kIgnored, "", "HF_HOME says where models are kept"},
    {kV, "--hf-token", kOne, kIgnored, "", "HF_TOKEN says it, where nobody reads it in a list"},
    {kV, "--seed", kOne, kAliasOrIgnored, "--seed", kSeed},
    {kV, "--task,--runner", kOne, kRefused, "", "this server generates text, and embeds it",
     "generate,auto,embed,embedding,pooling"},
    {kV, "--convert", kOne, kRefused, "", "this server generates text, and embeds it",
     "none,auto,embed"},
    {kV, "--enable-prefix-caching,--enable-chunked-prefill,--no-disable-hybrid-kv-cache-manager",
     kNone, kIgnored, "", kAlways},
    {kV, "--no-enable-prefix-caching", kNone, kAlias, "--no-prefix-cache"},
    {kV, "--no-enable-chunked-prefill,--async-scheduling,--no-async-scheduling", kNone, kIgnored,
     "", kSpeed},
    {kV, "--use-v2-block-manager,--disable-sliding-window,--disable-hybrid-kv-cache-manager", kNone,
     kIgnored, "", kInner},
    {kV, "--max-num-partial-prefills,--num-scheduler-steps,--max-long-partial-prefills", kOne,
     kIgnored, "", kSpeed},
    {kV, "--long-prefill-token-threshold,--prefix-caching-hash-algo,--scheduler-cls", kOne,
     kIgnored, "", kSpeed},
    {kV, "--disable-log-requests,--no-enable-log-requests,--disable-uvicorn-access-log", kNone,
     kAlias, "--no-log-requests"},
    {kVS, "--enable-log-requests,--log-requests,--disable-log-stats,--enable-metrics", kNone,
     kIgnored, "", kLogs},
    {kVS, "--uvicorn-log-level,--log-level,--log-level-http,--max-log-len", kOne, kIgnored, "",
     kLogs},
    {kVS, "--otlp-traces-endpoint,--log-requests-level,--decode-log-interval", kOne, kIgnored, "",
     kLogs},
    {kV, "--override-generation-config", kOne, kAlias, "--override-generation-config"},
    {kV, "--enable-auto-tool-choice,--disable-fastapi-docs,--enable-server-load-tracking", kNone,
     kIgnored, "", kAlways},
    {kVS, "--tool-call-parser", kOne, kAliasOrIgnored, "--tool-call-parser"},
    {kVS, "--reasoning-parser", kOne, kAliasOrIgnored, "--reasoning-parser"},
    {kV, "--tool-parser-plugin", kOne, kIgnored, "", kFormats},
    {kV, "--enable-reasoning", kNone, kIgnored, "", kFormats},
    {kVS, "--chat-template", kOne, kAlias, "--chat-template"},
    {kVS, "--chat-template-file", kOne, kAlias, "--chat-template"},
    {kV, "--chat-template-content-format", kOne, kIgnored, "", kTemplate},
    {kV, "--response-role", kOne, kRefused, "", "replies are the assistant's", "assistant"},
    {kV, "--guided-decoding-backend,--structured-outputs-config,--grammar-backend", kOne, kIgnored,
     "", kInner},
    {kV, "--logprobs-mode", kOne, kRefused, "", "log-probabilities are the model's own",
     "raw_logprobs"},
    {kV, "--max-logprobs", kOne, kIgnored, "", "requests are limited here as OpenAI limits them"},
    {kV, "--ssl-keyfile", kOne, kAlias, "--tls-key"},
    {kV, "--ssl-certfile", kOne, kAlias, "--tls-cert"},
    {kV, "--root-path", kOne, kRefused, "", "a proxy in front may take the prefix away"},
    {kV, "--limit-mm-per-prompt,--mm-processor-kwargs,--allowed-local-media-path", kOne, kIgnored,
     "", kMedia},
    {kVS, "--enable-lora", kNone, kRefused, "", kAdapter},
    {kVS, "--lora-modules,--lora-paths", kOne, kRefused, "", kAdapter},
    {kVS, "--max-lora-rank,--max-loras,--max-loras-per-batch", kOne, kIgnored, "", kInner},
    {kV, "--speculative-model", kOne, kDraft, "model"},
    {kV, "--num-speculative-tokens", kOne, kDraft, "num_speculative_tokens"},
    {kV, "--ngram-prompt-lookup-max", kOne, kDraft, "prompt_lookup_max"},
    {kV, "--ngram-prompt-lookup-min", kOne, kDraft, "prompt_lookup_min"},
    {kV, "--spec-decoding-acceptance-method", kOne, kDraft, "acceptance_method"},
    {kV,
     "--typical-acceptance-sampler-posterior-threshold,"
     "--typical-acceptance-sampler-posterior-alpha",
     kOne, kRefused, "", kLossy},
    {kV, "--speculative-draft-tensor-parallel-size,--speculative-max-model-len", kOne, kIgnored, "",
     kSpeed},
    {kV, "--speculative-disable-by-batch-size,--speculative-model-quantization", kOne, kIgnored, "",
     kSpeed},
    // --- SGLang
    {kS, "--model-path", kOne, kAlias, "--model"},
    {kS, "--context-length", kOne, kAlias, "--max-model-len"},
    {kS, "--tp,--tp-size,--dp,--dp-size,--pp-size,--ep,--ep-size", kOne, kIgnored, "", kMachines},
    {kS, "--dist-init-addr,--nccl-init-addr,--load-balance-method", kOne, kIgnored, "", kMachines},
    {kS, "--enable-dp-attention,--enable-dp-lm-head", kNone, kIgnored, "", kMachines},
    {kS, "--mem-fraction-static", kOne, kAlias, "--gpu-memory"},
    {kS, "--cuda-graph-max-bs,--torch-compile-max-bs,--base-gpu-id", kOne, kIgnored, "", kDevices},
    {kS, "--sampling-backend,--moe-runner-backend,--prefill-attention-backend", kOne, kIgnored, "",
     kDevices},
    {kS, "--decode-attention-backend,--mm-attention-backend", kOne, kIgnored, "", kDevices},
    {kS, "--disable-cuda-graph,--enable-torch-compile,--disable-cuda-graph-padding", kNone,
     kIgnored, "", kDevices},
    {kS, "--max-running-requests", kOne, kAlias, "--max-num-seqs"},
    {kS, "--max-total-tokens", kOne, kAlias, "--cache-tokens"},
    {kS, "--max-queued-requests", kOne, kAlias, "--max-waiting"},
    {kS, "--chunked-prefill-size", kOne, kAlias, "--prefill-chunk", "", "-1"},
    {kS, "--max-prefill-tokens", kOne, kAlias, "--max-num-batched-tokens"},
    {kS, "--schedule-policy,--schedule-conservativeness,--watchdog-timeout", kOne, kIgnored, "",
     kInner},
    {kS, "--num-continuous-decode-steps,--stream-output,--warmups", kOne, kIgnored, "", kInner},
    {kS, "--disable-radix-cache", kNone, kAlias, "--no-prefix-cache"},
    {kS, "--enable-mixed-chunk,--disable-overlap-schedule,--skip-server-warmup", kNone, kIgnored,
     "", kSpeed},
    {kS, "--enable-deterministic-inference", kNone, kIgnored, "", kAlways},
    {kS, "--random-seed", kOne, kAliasOrIgnored, "--seed", kSeed},
    {kS, "--sampling-defaults", kOne, kRefused, "", "--generation-config none is SGLang's openai",
     "model"},
    {kS, "--preferred-sampling-params", kOne, kAlias, "--override-generation-config"},
    {kS, "--speculative-algorithm,--speculative-algo", kOne, kDraft, "speculative_algorithm"},
    {kS, "--speculative-draft-model-path,--speculative-draft-model", kOne, kDraft, "model"},
    {kS, "--speculative-num-steps", kOne, kDraft, "speculative_num_steps"},
    {kS, "--speculative-eagle-topk", kOne, kDraft, "speculative_eagle_topk"},
    {kS, "--speculative-num-draft-tokens", kOne, kDraft, "speculative_num_draft_tokens"},
    {kS, "--speculative-ngram-min-match-window-size", kOne, kDraft, "prompt_lookup_min"},
    {kS, "--speculative-ngram-max-match-window-size", kOne, kDraft, "prompt_lookup_max"},
    {kS, "--speculative-ngram-min-bfs-breadth,--speculative-ngram-match-type", kOne, kIgnored, "",
     kSpeed},
    {kS, "--speculative-ngram-max-bfs-breadth", kOne, kDraft, "num_matches"},
    {kS, "--speculative-ngram-max-trie-depth,--speculative-ngram-branch-length", kOne, kIgnored, "",
     kSpeed},
    {kS, "--speculative-ngram-capacity,--speculative-token-map", kOne, kIgnored, "", kSpeed},
    {kS, "--speculative-attention-mode,--speculative-draft-attention-backend", kOne, kIgnored, "",
     kDevices},
    {kS, "--speculative-draft-model-revision", kOne, kDraft, "revision"},
    {kS, "--speculative-draft-load-format,--speculative-draft-model-quantization", kOne, kIgnored,
     "", kSpeed},
    {kS, "--speculative-moe-runner-backend,--speculative-moe-a2a-backend", kOne, kIgnored, "",
     kDevices},
    {kS, "--enable-multi-layer-eagle", kNone, kIgnored, "", kAlways},
    {kS, "--speculative-accept-threshold-single,--speculative-accept-threshold-acc", kOne, kRefused,
     "", kLossy, "1,1.0"},
    // --- llama.cpp
    {kL, "-c,--ctx-size", kOne, kAlias, "--ctx", "", "0"},
    {kL, "-np,--parallel", kOne, kAlias, "--max-num-seqs", "", "-1"},
    {kL, "-ns,--sequences", kOne, kIgnored, "", kInner},
    {kL, "-ub,--ubatch-size", kOne, kAlias, "--prefill-chunk"},
    {kL, "-b,--batch-size", kOne, kIgnored, "", kSpeed},
    {kL, "-t", kOne, kAlias, "--threads", "", "-1"},
    {kL, "-td,--threads-draft,--spec-draft-threads", kOne, kAlias, "--draft-threads", "", "-1"},
    {kL, "-tb,--threads-batch,-tbd,--threads-batch-draft,--threads-http", kOne, kIgnored, "",
     "a number of threads is for all passes: --threads, --draft-threads"},
    {kL, "--spec-draft-threads-batch,--prio,--prio-batch,--poll", kOne, kIgnored, "", kSpeed},
    {kL, "-C,--cpu-mask,-Cr,--cpu-range,--cpu-strict,--numa", kOne, kIgnored, "", kSpeed},
    {kL, "-ngl,--gpu-layers", kOne, kAlias, "--n-gpu-layers"},
    {kL, "-dev", kOne, kAlias, "--device"},
    {kL, "-ngld,--gpu-layers-draft,--n-gpu-layers-draft", kOne, kIgnored, "", kDevices},
    {kL, "--spec-draft-ngl,-devd,--device-draft,--spec-draft-device,-sm,--split-mode", kOne,
     kIgnored, "", kDevices},
    {kL, "-ts,--tensor-split,-mg,--main-gpu,-ot,--override-tensor,-ncmoe,--n-cpu-moe", kOne,
     kIgnored, "", kDevices},
    {kL, "-otd,--override-tensor-draft,-ncmoed,--n-cpu-moe-draft,-fitt,-fitc", kOne, kIgnored, "",
     kDevices},
    {kL, "-fa,--flash-attn,-fit,--fit", kWord, kIgnored, "", kDevices},
    {kL, "-cmoe,--cpu-moe,-cmoed,--cpu-moe-draft,-kvo,--kv-offload,-nkvo,--no-kv-offload", kNone,
     kIgnored, "", kDevices},
    {kL, "--op-offload,--no-op-offload,--repack,-nr,--no-repack,--no-host", kNone, kIgnored, "",
     kDevices},
    {kL, "--mmap,--no-mmap,--mlock,--swa-full,--warmup,--no-warmup,--check-tensors", kNone,
     kIgnored, "", kInner},
    {kL, "-lm,--load-mode,-dt,--defrag-thold,-ctxcp,--ctx-checkpoints,-cram,--cache-ram", kOne,
     kIgnored, "", kInner},
    {kL, "--cache-reuse,-sps,--slot-prompt-similarity,--slot-save-path,--keep", kOne, kIgnored, "",
     kInner},
    {kL, "-cb,--cont-batching,-nocb,--no-cont-batching,-kvu,--kv-unified,--no-kv-unified", kNone,
     kIgnored, "", kInner},
    {kL, "--cache-prompt,--metrics,--props,--slots,--no-slots,--ui,--no-ui,--webui,--no-webui",
     kNone, kIgnored, "", kAlways},
    {kL, "--no-cache-prompt", kNone, kAlias, "--no-prefix-cache"},
    {kL, "--jinja,--no-jinja,--no-context-shift,--no-escape,--prefill-assistant", kNone, kIgnored,
     "", kAlways},
    {kL, "-e,--escape", kNone, kIgnored, "", "write line breaks into the prompt as they are"},
    {kL, "--context-shift", kNone, kRefused, "", "a text ends where the context is full"},
    {kL, "-ctk,--cache-type-k,-ctv,--cache-type-v", kOne, kCacheType},
    {kL, "-ctkd,--cache-type-k-draft,-ctvd,--cache-type-v-draft", kOne, kIgnored, "", kSpeed},
    {kL, "--spec-draft-type-k,--spec-draft-type-v,-cd,--ctx-size-draft", kOne, kIgnored, "",
     kSpeed},
    {kL, "-hf,-hfr,--hf-repo", kOne, kAlias, "--model"},
    {kL, "-hff,--hf-file", kOne, kRefused, "", "write it behind the model's name: ORG/REPO:FILE"},
    {kL, "-hft", kOne, kIgnored, "", "HF_TOKEN says it, where nobody reads it in a list"},
    {kL, "-mu,--model-url", kOne, kRefused, "", "give a file, a folder or ORG/REPO"},
    {kL, "-mm,--mmproj,--mmproj-url", kOne, kIgnored, "", kMedia},
    {kL, "--no-mmproj,--mmproj-auto", kNone, kIgnored, "", kMedia},
    {kL, "-a,--alias", kOne, kAlias, "--served-model-name"},
    {kL, "--ssl-key-file", kOne, kAlias, "--tls-key"},
    {kL, "--ssl-cert-file", kOne, kAlias, "--tls-cert"},
    {kL, "-to,--timeout,--log-file,--log-colors,-lv,--verbosity,--log-verbosity", kOne, kIgnored,
     "", kLogs},
    {kL, "-v,--verbose,--log-verbose,--log-disable,--log-prefix,--log-timestamps,--perf,--no-perf",
     kNone, kIgnored, "", kLogs},
    {kL, "--no-display-prompt,--simple-io,-st,--single-turn,--show-timings,-fim", kNone, kIgnored,
     "", kLogs},
    {kL, "--reasoning-format,--reasoning-budget", kOne, kIgnored, "", kFormats},
    {kL, "--chat-template-kwargs", kOne, kRefused, "", kTemplate},
    {kL, "--predict,--n-predict", kOne, kAlias, "--max-tokens", "requests say max_tokens", "-1"},
    {kL, "-n", kOne, kRefused, "", "requests say max_tokens", "-1"},
    {kL, "-s", kOne, kAliasOrIgnored, "--seed", kSeed, "-1"},
    {kL, "--temp,--temperature", kOne, kSampling, "temperature"},
    {kL, "--top-k", kOne, kSampling, "top_k"},
    {kL, "--top-p", kOne, kSampling, "top_p"},
    {kL, "--min-p", kOne, kSampling, "min_p"},
    {kL, "--repeat-penalty", kOne, kSampling, "repetition_penalty"},
    {kL, "--repeat-last-n", kOne, kRefused, "", "requests say it", "64"},
    {kL, "--presence-penalty,--frequency-penalty", kOne, kRefused, "", "requests say it", "0,0.0"},
    {kL, "--mirostat,--xtc-probability,--dry-multiplier,--dynatemp-range", kOne, kRefused, "",
     kSampler, "0,0.0,0.00"},
    {kL, "--typical,--typical-p", kOne, kRefused, "", kSampler, "1,1.0"},
    {kL, "--top-nsigma,--top-n-sigma,--adaptive-target", kOne, kRefused, "", kSampler, "-1,-1.0"},
    {kL, "--samplers,--sampler-seq,--sampling-seq", kOne, kRefused, "",
     "samplers have one order: penalties, temperature, top-k, top-p, min-p"},
    {kL, "--mirostat-lr,--mirostat-ent,--xtc-threshold,--dry-base,--dry-allowed-length", kOne,
     kIgnored, "", "of a sampler that is not used"},
    {kL, "--dry-penalty-last-n,--dynatemp-exp,--adaptive-decay", kOne, kIgnored, "",
     "of a sampler that is not used"},
    {kL, "-l", kOne, kAlias, "--logit-bias", "requests say logit_bias"},
    {kL, "-j", kOne, kAlias, "--json-schema", "requests say response_format"},
    {kL, "--grammar-file,-jf,--json-schema-file", kOne, kRefused, "",
     "give its text: --grammar \"$(cat FILE)\", --json-schema \"$(cat FILE)\""},
    {kL, "-r,--reverse-prompt", kOne, kAlias, "--stop", "requests say stop"},
    {kL, "-sys,--system-prompt", kOne, kAlias, "--system", "requests bring their messages"},
    {kL, "-cnv,--conversation,-i,--interactive", kNone, kAlias, "--chat", "requests are chats"},
    {kL, "-no-cnv,--no-conversation", kNone, kAlias, "--raw", "requests are chats or texts"},
    {kL, "--lora,--lora-scaled", kOne, kRefused, "", kAdapter},
    {kL, "--control-vector,--control-vector-scaled", kOne, kRefused, "",
     "control vectors are not applied"},
    {kL, "--override-kv,--rope-scale,--rope-freq-base,--rope-freq-scale", kOne, kRefused, "",
     kRope},
    {kL, "--yarn-orig-ctx,--yarn-ext-factor,--yarn-attn-factor,--yarn-beta-slow,--yarn-beta-fast",
     kOne, kRefused, "", kRope},
    {kL, "--embedding,--embeddings", kNone, kIgnored, "", "/v1/embeddings is there in any case"},
    {kL, "--rerank,--reranking", kNone, kRefused, "", "this server ranks nothing"},
    {kL, "--path,--api-prefix,--tools", kOne, kRefused, "", "there is nothing like it"},
    {kL, "-md,--model-draft,--spec-draft-model,-hfd,-hfrd,--hf-repo-draft,--spec-draft-hf", kOne,
     kDraft, "model"},
    {kL, "--draft,--draft-n,--draft-max,--spec-draft-n-max,--spec-ngram-mod-n-max", kOne, kDraft,
     "num_speculative_tokens"},
    {kL, "--draft-min,--draft-n-min,--spec-draft-n-min,--spec-ngram-mod-n-min", kOne, kIgnored, "",
     kSpeed},
    {kL, "--draft-p-min,--spec-draft-p-min", kOne, kDraft, "min_probability"},
    {kL, "--draft-p-split,--spec-draft-p-split,--spec-draft-sampling", kOne, kIgnored, "", kSpeed},
    {kL, "--spec-type", kOne, kDraft, "spec_type"},
    {kL, "--spec-ngram-size-n,--spec-ngram-simple-size-n,--spec-ngram-map-k-size-n", kOne, kDraft,
     "prompt_lookup_max"},
    {kL, "--spec-ngram-map-k4v-size-n,--spec-ngram-mod-n-match", kOne, kDraft, "prompt_lookup_max"},
    {kL, "--spec-ngram-size-m,--spec-ngram-simple-size-m,--spec-ngram-map-k-size-m", kOne, kDraft,
     "num_speculative_tokens"},
    {kL, "--spec-ngram-map-k4v-size-m", kOne, kDraft, "num_speculative_tokens"},
    {kL, "--spec-ngram-check-rate,--spec-ngram-min-hits,--spec-ngram-simple-min-hits", kOne,
     kIgnored, "", kSpeed},
    {kL, "--spec-ngram-map-k-min-hits,--spec-ngram-map-k4v-min-hits", kOne, kIgnored, "", kSpeed},
    {kL, "--spec-default", kNone, kIgnored, "", "auto is the default"},
    {kL, "--spec-synth-len,--spec-synth-rates", kOne, kRefused, "", kLossy},
    {kL, "-lcs,--lookup-cache-static,-lcd,--lookup-cache-dynamic", kOne, kIgnored, "", kSpeed},
    // --- TensorRT-LLM; keys of its YAML files are names with dashes
    {kT, "--extra-llm-api-options", kOne, kAlias, "--config"},
    {kT, "--max-batch-size", kOne, kAlias, "--max-num-seqs"},
    {kT, "--max-num-tokens", kOne, kAlias, "--max-num-batched-tokens"},
    {kT, "--max-seq-len", kOne, kAlias, "--max-model-len"},
    {kT, "--backend,--gpus-per-node,--cluster-size", kOne, kIgnored, "", kMachines},
    {kT, "--moe-expert-parallel-size,--max-beam-width,--num-postprocess-workers", kOne, kIgnored,
     "", kMachines},
    {kT, "--kv-cache-free-gpu-memory-fraction,--free-gpu-memory-fraction", kOne, kIgnored, "",
     kDevices},
    {kT, "--kv-cache-config.free-gpu-memory-fraction,--kv-cache-config.max-tokens", kOne, kIgnored,
     "", kDevices},
    {kT, "--kv-cache-config.enable-block-reuse,--kv-cache-config.enable-partial-reuse", kOne,
     kIgnored, "", kSpeed},
    {kT, "--kv-cache-config.dtype", kOne, kCacheType},
    {kT,
     "--cuda-graph-config,--moe-config,--attn-backend,--scheduler-config,--torch-compile-config",
     kOne, kIgnored, "", kDevices},
    {kT, "--enable-attention-dp,--disable-overlap-scheduler,--use-cuda-graph,--print-iter-log",
     kOne, kIgnored, "", kSpeed},
    {kT, "--stream-interval", kOne, kAlias, "--stream-interval"},
    {kT, "--lora-config", kOne, kRefused, "", kAdapter},
    {kT, "--quant-config", kOne, kRefused, "", kQuantized},
};

constexpr std::string_view kB = "vllm bench serve";
constexpr std::string_view kReport = "the report has one form, with all of it";

constexpr TheirFlag kBenchFlags[] = {
    {kB, "--base-url", kOne, kAlias, "--url"},
    {kB, "--dataset-path", kOne, kAlias, "--dataset"},
    {kB, "--hf-split,--hf-subset,--hf-name", kOne, kIgnored, "", "of a set that is fetched"},
    {kB, "--max-concurrency", kOne, kAlias, "--concurrency"},
    {kB, "--request-rate", kOne, kAlias, "--rate"},
    {kB, "--burstiness", kOne, kRefused, "", "requests arrive as a Poisson process", "1,1.0"},
    {kB, "--hf-output-len,--custom-output-len,--sharegpt-output-len,--spec-bench-output-len", kOne,
     kAlias, "--max-tokens"},
    {kB, "--output-len", kOne, kAlias, "--max-tokens"},
    {kB, "--endpoint-type", kOne, kAlias, "--backend"},
    {kB, "--served-model-name", kOne, kAlias, "--model"},
    {kB, "--tokenizer,--tokenizer-mode,--metadata,--goodput,--ready-check-timeout-sec", kOne,
     kIgnored, "", "tokens are counted by the server"},
    {kB, "--trust-remote-code,--skip-chat-template,--custom-skip-chat-template", kNone, kIgnored,
     "", "--endpoint says whether messages or texts are sent"},
    {kB, "--percentile-metrics,--metric-percentiles", kOne, kIgnored, "", kReport},
    {kB, "--save-detailed,--disable-tqdm", kNone, kIgnored, "", kReport},
    {kB, "--disable-shuffle,--no-oversample,--profile", kNone, kIgnored, "",
     "prompts are taken in their order, and over again if they are fewer"},
};

std::string fate_text(const TheirFlag& flag) {
  std::string text;
  switch (flag.fate) {
    case kAlias:
    case kAliasOrIgnored:
      text = fmt::format("`{}`", flag.ours);
      break;
    case kDraft:
      text = fmt::format("speculation: `{}`", flag.ours);
      break;
    case kSampling:
      text = fmt::format("`--override-generation-config`: `{}`", flag.ours);
      break;
    case kCacheType:
      text = "`--cache-type`: f16, or q8 for any of 8 bits";
      break;
    case kIgnored:
      text = "ignored";
      break;
    case kRefused:
      text = "refused";
      break;
  }
  if (flag.fate == kAliasOrIgnored) text += "; ignored where there is none";
  if (!flag.why.empty()) text += fmt::format(": {}", flag.why);
  if (!flag.neutral.empty()) text += fmt::format(" (not {})", flag.neutral);
  return text;
}

// Each of a list with commas.
template <typename Take>
void each_name(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    take(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 1));
  }
}

}  // namespace

std::span<const TheirFlag> their_flags() {
  return kFlags;
}

std::span<const TheirFlag> their_bench_flags() {
  return kBenchFlags;
}

std::span<const TheirFlag> their_model_names() {
  return {find_their_flag(kFlags, "--hf-repo"), 1};
}

bool is_listed(std::string_view list, std::string_view word) {
  bool found = false;
  each_name(list, [&](std::string_view one) { found = found || one == word; });
  return found;
}

const TheirFlag* find_their_flag(std::span<const TheirFlag> flags, std::string_view name) {
  const auto found = std::ranges::find_if(
      flags, [&](const TheirFlag& flag) { return is_listed(flag.names, name); });
  return found == flags.end() ? nullptr : &*found;
}

std::string flags_table(std::span<const TheirFlag> flags) {
  std::string text = "| of | flag | here |\n| --- | --- | --- |\n";
  for (const TheirFlag& flag : flags) {
    std::string names;
    each_name(flag.names, [&](std::string_view name) {
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
    });
    text += fmt::format("| {} | {} | {} |\n", flag.programs, names, fate_text(flag));
  }
  return text;
}

}  // namespace aerie
