#include "measure/passes/head_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/progress.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/heads.h"
#include "draft/network/network_drafter.h"
#include "measure/models/make_head.h"
#include "measure/passes/counting_backend.h"
#include "measure/passes/loaded_model.h"
#include "measure/report_head.h"

namespace aerie::measure {
namespace {

namespace fs = std::filesystem;

constexpr double kPerOperation = 10.0;  // microseconds
constexpr int kRows = 256;
constexpr int kRepeatsBeforeLimits = 5;

double microseconds_since(SteadyTime start) {
  return 1e6 * seconds_since(start);
}

// A folder that goes when this does.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::temp_directory_path() / fmt::format("aerie-heads-{:x}", std::random_device()())) {
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

// Adds up what the passes of a network take.
class TimedNetwork final : public DraftNetwork {
 public:
  TimedNetwork(std::unique_ptr<DraftNetwork> inner, double& microseconds)
      : inner_(std::move(inner)), microseconds_(microseconds) {}

  const DrafterNeeds& needs() const override { return inner_->needs(); }
  int vocab() const override { return inner_->vocab(); }
  std::span<const int32_t> target_ids() const override { return inner_->target_ids(); }
  bool reads(int32_t token) const override { return inner_->reads(token); }
  int depths() const override { return inner_->depths(); }
  bool follows() const override { return inner_->follows(); }
  float follow(const DraftOutputs& outputs, int row, std::span<const int32_t> before,
               std::span<float> logits) override {
    return inner_->follow(outputs, row, before, logits);
  }
  Status open(int place, const DraftSequence& sequence) override {
    return inner_->open(place, sequence);
  }
  void close(int place) override { inner_->close(place); }
  int reusable(std::span<const int32_t> tokens, std::string_view tenant) const override {
    return inner_->reusable(tokens, tenant);
  }
  bool will_share(int place) const override { return inner_->will_share(place); }
  void begin(DraftsAhead* ahead) override { inner_->begin(ahead); }
  int unread(int place) const override { return inner_->unread(place); }
  void keep(int place, std::span<const int32_t> tokens) override { inner_->keep(place, tokens); }
  int start(int place, std::span<const int32_t> tokens, int run, int depth) override {
    return inner_->start(place, tokens, run, depth);
  }
  bool runs_ahead() const override { return inner_->runs_ahead(); }
  void expect_chain(int place, int rows) override { inner_->expect_chain(place, rows); }
  int root_rows(int place) const override { return inner_->root_rows(place); }
  void add_root(int place) override { inner_->add_root(place); }
  void add_node(int place, const LevelTree& tree, int32_t node) override {
    inner_->add_node(place, tree, node);
  }
  DraftOutputs run() override {
    const auto start = steady_now();
    const DraftOutputs outputs = inner_->run();
    microseconds_ += microseconds_since(start);
    return outputs;
  }
  Status status() const override { return inner_->status(); }
  void observe(int place, const DraftCommit& commit, std::span<const int32_t> path) override {
    inner_->observe(place, commit, path);
  }

 private:
  std::unique_ptr<DraftNetwork> inner_;
  double& microseconds_;
};

// The target and what its layers give: random features of about the right size.
class Bench {
 public:
  Bench(const HeadBenchOptions& options, LoadedModel& target, Machine machine)
      : options_(options),
        target_(target),
        pool_(target.pool()),
        machine_(std::move(machine)),
        counting_(*kernels::backend(options.isa)) {
    const int length = positions();
    for (int i = 0; i < length; ++i) tokens_.push_back(target.random_token());
  }

  Status measure(const std::string& kind, HeadReport& report);

 private:
  struct Head {
    std::unique_ptr<HeadFile> file;
    std::unique_ptr<DraftNetwork> network;
  };
  struct Subject;

  // Every repetition makes one position more.
  int positions() const { return options_.context + 2 * options_.repeats + 2 * kMostHeadDepth; }
  Expected<Head> load(const std::string& kind, NetworkDrafterOptions drafter) const;
  NetworkDrafterOptions chain(int depth) const;
  DraftCommit commit(int first, int rows, const DrafterNeeds& needs);
  Status repeat(int repetition, Subject& subject);
  Status time_passes(const std::string& kind, std::span<const int> depths, HeadReport& report);
  Status time_trees(const std::string& kind, HeadReport& report);
  double allowed();

  const HeadBenchOptions& options_;
  LoadedModel& target_;
  ThreadPool& pool_;
  Machine machine_;
  CountingBackend counting_;
  TemporaryFolder folder_;
  std::vector<int32_t> tokens_;
  std::vector<float> taps_;
  double bandwidth_ = 0;
  std::vector<double> bandwidths_;
};

NetworkDrafterOptions Bench::chain(int depth) const {
  NetworkDrafterOptions options;
  options.num_tokens = depth;
  return options;
}

Expected<Bench::Head> Bench::load(const std::string& kind, NetworkDrafterOptions drafter) const {
  Head head;
  HeadSettings settings;
  if (!options_.type.empty()) settings.dtype = dtype_from_name(options_.type);
  settings.depth = draft_depth(drafter);
  AERIE_ASSIGN_OR_RETURN(head.file, HeadFile::open(folder_ / kind, {settings.dtype, &pool_}));
  drafter.vocab = target_.model().config().vocab;
  drafter.max_rows = kRows;
  drafter.max_logits = std::max(64, most_nodes_in_pass(drafter));
  HeadTarget target;
  target.parts = target_.model().parts();
  target.config = &target_.model().config();
  target.file = &target_.file();
  target.backend = &counting_;
  target.pool = &pool_;
  target.max_rows = drafter.max_rows;
  target.max_logits = drafter.max_logits;
  target.max_positions = positions() + kMostHeadDepth;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<FeatureHead> loaded,
                         load_head(method_of_kind(kind), *head.file, target, settings));
  FeatureNetworkOptions options;
  options.drafter = drafter;
  options.max_positions = positions();
  AERIE_ASSIGN_OR_RETURN(head.network, make_feature_network(std::move(loaded), options));
  return head;
}

DraftCommit Bench::commit(int first, int rows, const DrafterNeeds& needs) {
  const size_t width =
      needs.tap_layers.size() * static_cast<size_t>(target_.model().config().hidden);
  const size_t wanted = width * static_cast<size_t>(rows);
  std::minstd_rand random(static_cast<unsigned>(first + 1));
  std::normal_distribution<float> normal;
  while (taps_.size() < wanted) taps_.push_back(normal(random));
  DraftCommit commit;
  commit.tokens = std::span(tokens_).first(static_cast<size_t>(first + rows + 1));
  commit.first = first;
  commit.rows = rows;
  commit.taps = std::span<const float>(taps_).first(wanted);
  return commit;
}

double Bench::allowed() {
  return 1e6 * static_cast<double>(counting_.weight_bytes()) / bandwidth_ +
         kPerOperation * counting_.operations();
}

// A head under way, and the times of its passes so far.
struct Bench::Subject {
  Head head;
  int depth = 1;
  HeadPoint root, node;
  std::vector<double> roots, nodes, roots_allowed, nodes_allowed;
};

// One root and one node.
Status Bench::repeat(int repetition, Subject& subject) {
  DraftNetwork& network = *subject.head.network;
  const int known = options_.context + 1 + repetition;
  const bool counts = repetition >= kRepeatsBeforeLimits;  // the first warm up
  const auto text = std::span<const int32_t>(tokens_).first(static_cast<size_t>(known));
  if (network.start(0, text, subject.depth, subject.depth) <= 0) {
    return internal_error("{} does not draft", subject.root.kind);
  }
  // As in a round, where the target's weights have taken the caches.
  AERIE_RETURN_IF_ERROR(target_.pass(0, 1).status());
  LevelTree tree;
  LevelLimits limits;
  limits.max_nodes = limits.max_depth = subject.depth;
  tree.start(limits);
  const auto timed = [&](HeadPoint& point, std::vector<double>& times,
                         std::vector<double>& all_allowed) {
    counting_.reset();
    const auto start = steady_now();
    network.run();
    const double time = microseconds_since(start);
    point.bytes = static_cast<double>(counting_.weight_bytes());
    point.operations = counting_.operations();
    if (!counts) return;
    times.push_back(time);
    all_allowed.push_back(allowed());
  };
  network.add_root(0);
  timed(subject.root, subject.roots, subject.roots_allowed);
  if (network.depths() == 1 && subject.depth > 1) {
    const LevelTree::Child child{tokens_[static_cast<size_t>(repetition)], 1.0};
    tree.expand(-1, {&child, 1});
    tree.advance();
    network.add_node(0, tree, 0);
    timed(subject.node, subject.nodes, subject.nodes_allowed);
  }
  network.observe(0, commit(known - 1, 1, network.needs()), {});
  return {};
}

// Heads of one kind and several depths take turns, so that their times can be compared.
Status Bench::time_passes(const std::string& kind, std::span<const int> depths,
                          HeadReport& report) {
  std::vector<Subject> subjects(depths.size());
  for (size_t d = 0; d < depths.size(); ++d) {
    Subject& subject = subjects[d];
    subject.depth = depths[d];
    subject.root.kind = subject.node.kind = kind;
    subject.root.pass = depths.size() == 1 ? "root" : fmt::format("root, {} depths", subject.depth);
    subject.node.pass = "node";
    AERIE_ASSIGN_OR_RETURN(subject.head, load(kind, chain(subject.depth)));
    DraftNetwork& network = *subject.head.network;
    DraftSequence sequence;
    sequence.max_tokens = positions();
    AERIE_RETURN_IF_ERROR(network.open(0, sequence));
    network.observe(0, commit(0, options_.context, network.needs()), {});
  }
  const int repeats = options_.repeats + kRepeatsBeforeLimits;
  Progress progress("timing heads: " + kind, repeats);
  for (int i = 0; i < repeats; ++i) {
    if (i % kRepeatsBeforeLimits == 0) {
      bandwidth_ = machine_.read_bandwidth();
      bandwidths_.push_back(bandwidth_);
    }
    for (Subject& subject : subjects) AERIE_RETURN_IF_ERROR(repeat(i, subject));
    progress.add(1);
  }
  for (size_t d = 0; d < subjects.size(); ++d) {
    Subject& subject = subjects[d];
    std::vector<double> ratios;
    for (size_t i = 0; d > 0 && i < subject.roots.size(); ++i) {
      ratios.push_back(subject.roots[i] / subjects[0].roots[i]);
    }
    subject.root.microseconds = median(subject.roots);
    subject.root.allowed = median(subject.roots_allowed);
    subject.root.ratio = median(ratios);
    report.points.push_back(subject.root);
    if (subject.nodes.empty()) continue;
    subject.node.microseconds = median(subject.nodes);
    subject.node.allowed = median(subject.nodes_allowed);
    report.points.push_back(subject.node);
  }
  return {};
}

Status Bench::time_trees(const std::string& kind, HeadReport& report) {
  NetworkDrafterOptions options = chain(60);
  options.num_steps = 7;
  options.top_k = 10;
  options.method = kind;
  options.vocab = target_.model().config().vocab;
  options.max_rows = kRows;
  options.max_logits = std::max(64, most_nodes_in_pass(options));
  options.backend = &counting_;
  options.pool = &pool_;
  AERIE_ASSIGN_OR_RETURN(Head head, load(kind, options));
  double passes = 0;
  const std::unique_ptr<Drafter> drafter = make_network_drafter(
      std::make_unique<TimedNetwork>(std::move(head.network), passes), options);
  DraftSequence sequence;
  sequence.max_tokens = positions();
  AERIE_RETURN_IF_ERROR(drafter->open(sequence));
  DraftCommit prompt = commit(0, options_.context, drafter->needs());
  AERIE_RETURN_IF_ERROR(drafter->observe({&prompt, 1}));
  std::vector<double> totals, in_passes, ranking, growth;
  TokenTree proposal;
  const int repeats = options_.repeats + kRepeatsBeforeLimits;
  Progress progress("timing trees: " + kind, repeats);
  for (int i = 0; i < repeats; ++i) {
    const int known = options_.context + 1 + i;
    proposal.clear();
    DraftRequest request;
    request.tokens = std::span(tokens_).first(static_cast<size_t>(known));
    request.max_nodes = options.num_tokens;
    request.tree = &proposal;
    AERIE_RETURN_IF_ERROR(target_.pass(0, 1).status());
    passes = 0;
    counting_.reset();
    const auto start = steady_now();
    AERIE_RETURN_IF_ERROR(drafter->propose({&request, 1}));
    const double total = microseconds_since(start);
    if (i >= kRepeatsBeforeLimits) {
      totals.push_back(total);
      in_passes.push_back(passes);
      ranking.push_back(counting_.ranking_us());
      growth.push_back(total - passes - counting_.ranking_us());
    }
    const DraftCommit one = commit(known - 1, 1, drafter->needs());
    AERIE_RETURN_IF_ERROR(drafter->observe({&one, 1}));
    progress.add(1);
  }
  report.trees.push_back(
      {kind, median(totals), median(in_passes), median(ranking), median(growth)});
  return {};
}

Status Bench::measure(const std::string& kind, HeadReport& report) {
  MakeHeadOptions make;
  make.kind = kind;
  make.output = folder_ / kind;
  make.draft_vocab = options_.draft_vocab;
  make.depth = options_.depth;
  AERIE_RETURN_IF_ERROR(make_head(make, target_.model().config()).status());
  const std::vector<int> depths =
      is_parallel_kind(kind) ? std::vector<int>{1, 4, 8, 16} : std::vector<int>{options_.depth};
  AERIE_RETURN_IF_ERROR(time_passes(kind, depths, report));
  if (grows_trees(kind)) AERIE_RETURN_IF_ERROR(time_trees(kind, report));
  report.limits.bandwidth = median(bandwidths_);
  return {};
}

}  // namespace

Expected<HeadReport> bench_heads(const HeadBenchOptions& options) {
  AERIE_RETURN_IF_ERROR(check_memory(options.memory_mib));
  LoadOptions load;
  load.engine.model = options.model;
  load.engine.threads = options.threads;
  load.engine.isa = options.isa;
  load.engine.device = "cpu";
  AERIE_ASSIGN_OR_RETURN(const auto target, LoadedModel::load(load));
  AERIE_ASSIGN_OR_RETURN(Machine machine,
                         Machine::open(options.isa, target->pool(), options.memory_mib));
  HeadReport report;
  report.model = options.model;
  report.threads = target->pool().threads();
  report.isa = options.isa;
  report.type = options.type.empty() ? "bf16" : options.type;
  report.context = options.context;
  Bench bench(options, *target, std::move(machine));
  std::vector<std::string> kinds = options.kinds;
  if (kinds.empty()) kinds.assign(head_kinds().begin(), head_kinds().end());
  for (const std::string& kind : kinds) {
    AERIE_RETURN_IF_ERROR(bench.measure(kind, report));
  }
  return report;
}

std::string to_text(const HeadReport& report) {
  std::string text = head_text(report.model, report.threads, report.isa, report.limits);
  text += fmt::format("heads in {}, {} positions\n", report.type, report.context);
  text += fmt::format("{:<15} {:<15} {:>8} {:>11} {:>9} {:>9} {:>6} {:>6}\n", "head", "pass", "MiB",
                      "operations", "us", "allowed", "share", "ratio");
  for (const HeadPoint& p : report.points) {
    text += fmt::format("{:<15} {:<15} {:>8.1f} {:>11} {:>9.0f} {:>9.0f} {:>5.0f}% {:>6}\n", p.kind,
                        p.pass, p.bytes / (1 << 20), p.operations, p.microseconds, p.allowed,
                        100 * p.microseconds / p.allowed,
                        p.ratio > 0 ? fmt::format("{:.2f}", p.ratio) : "");
  }
  text += fmt::format("{:<15} {:>12} {:>12} {:>12} {:>12}\n", "tree of 60", "us", "in passes",
                      "in ranking", "growth");
  for (const TreePoint& t : report.trees) {
    text += fmt::format("{:<15} {:>12.0f} {:>12.0f} {:>12.0f} {:>12.0f}\n", t.kind, t.total_us,
                        t.passes_us, t.ranking_us, t.growth_us);
  }
  return text;
}

std::string to_json(const HeadReport& report) {
  Json out = head_json(report.model, report.threads, report.isa, report.limits);
  out["type"] = report.type;
  out["context"] = report.context;
  out["passes"] = Json::array();
  for (const HeadPoint& p : report.points) {
    out["passes"].push_back({{"head", p.kind},
                             {"pass", p.pass},
                             {"bytes", p.bytes},
                             {"operations", p.operations},
                             {"microseconds", p.microseconds},
                             {"allowed", p.allowed},
                             {"ratio", p.ratio}});
  }
  out["trees"] = Json::array();
  for (const TreePoint& t : report.trees) {
    out["trees"].push_back({{"head", t.kind},
                            {"microseconds", t.total_us},
                            {"passes", t.passes_us},
                            {"ranking", t.ranking_us},
                            {"growth", t.growth_us}});
  }
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure
