// The program aerie-bench-peagle: what a step of P-EAGLE's training takes in memory and time, with
// its masked rows in one part and in several. Every step runs in a process of its own, so that each
// has its own peak.
//
//   aerie-bench-peagle -m MODEL [--rows 2048 8192] [--segments 1 8] [--seeds 3] [--json FILE]
//
// The batch is one text of random tokens with random streams, all of it supervised: there are as
// many masked rows as there can be.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flag_values.h"
#include "base/program.h"
#include "base/standard_streams.h"
#include "base/thread_pool.h"
#include "format/json.h"
#include "format/output_file.h"
#include "train/methods/peagle/peagle_method.h"

extern char** environ;

namespace aerie::train {
namespace {

struct BenchFlags {
  std::string model, json;
  std::vector<int64_t> rows = {2048, 8192};
  std::vector<int64_t> segments = {1, 8};
  std::vector<int64_t> vocabularies = {4096, 32000};
  int64_t depths = 8;
  int64_t layers = 4;
  int seeds = 3;
  bool measure = false;  // one step, in this process
};

// Bytes; `line` as in /proc/self/status.
int64_t memory_now(const std::string& line) {
  std::ifstream file("/proc/self/status");
  for (std::string text; std::getline(file, text);) {
    if (text.starts_with(line)) return std::stoll(text.substr(line.size())) * 1024;
  }
  return 0;
}

// Of this process's threads together: others that use the machine count for little.
double processor_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Batch random_batch(const Target& target, int64_t rows, size_t taps, at::Generator& generator) {
  Batch batch;
  batch.documents.starts.push_back(rows);
  batch.tokens = at::randint(target.config().vocab, {rows}, generator, at::kLong);
  batch.positions = at::arange(rows, at::kLong);
  batch.mask = at::ones({rows});
  batch.taps = at::randn({rows, target.config().hidden * static_cast<int64_t>(taps)}, generator);
  batch.last = at::randn({rows, target.config().hidden}, generator);
  return batch;
}

// One step, of the first of each list.
Expected<Json> measure(const BenchFlags& flags) {
  ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const auto target, Target::open(flags.model, pool));
  PEagleOptions options;
  options.head.layers = flags.layers;
  options.sampling.depths = flags.depths;
  options.segments = flags.segments.front();
  options.head.vocabulary.resize(static_cast<size_t>(flags.vocabularies.front()));
  std::iota(options.head.vocabulary.begin(), options.head.vocabulary.end(), 0);
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(flags.seeds));
  AERIE_ASSIGN_OR_RETURN(const auto method, make_peagle(*target, options, generator));
  const Batch batch =
      random_batch(*target, flags.rows.front(), method->needs().tap_layers.size(), generator);
  const double weight = method->weight(batch);
  const int64_t before = memory_now("VmRSS:");
  const double processor = processor_seconds();
  const auto start = steady_now();
  AERIE_ASSIGN_OR_RETURN(const Figures figures,
                         method->accumulate(batch, 1.0 / weight, generator, true));
  const double seconds = seconds_since(start);
  double elements = 0.0, loss = 0.0;
  for (const auto& [name, sum] : figures.sums) {
    if (name.starts_with("rows_")) elements += sum;
    if (name == "loss") loss = sum / weight;
  }
  const int64_t peak = memory_now("VmHWM:");
  return Json{{"rows", flags.rows.front()},
              {"segments", flags.segments.front()},
              {"vocabulary", flags.vocabularies.front()},
              {"depths", flags.depths},
              {"layers", flags.layers},
              {"seed", flags.seeds},
              {"elements", elements},
              {"loss", loss},
              {"seconds", seconds},
              {"processor_seconds", processor_seconds() - processor},
              {"before_bytes", before},
              {"step_bytes", peak - before},
              {"peak_bytes", peak}};
}

Status failed(const std::string& what) {
  return {StatusCode::kInternal, "a process that measures a step: " + what};
}

// What this program prints with these arguments.
Expected<std::string> output_of(std::vector<std::string> arguments) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return failed("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  if (error == 0) {
    std::array<char, 4096> part = {};
    for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
      text.append(part.data(), static_cast<size_t>(got));
    }
  }
  close(ends[0]);
  if (error != 0) return failed("cannot be started");
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return failed("ended without a result; it may have had too little memory");
  }
  return text;
}

Expected<Json> measure_apart(const BenchFlags& flags, const std::array<int64_t, 3>& what,
                             int seed) {
  AERIE_ASSIGN_OR_RETURN(
      const std::string text,
      output_of({"aerie-bench-peagle", "--measure", "-m", flags.model, "--rows",
                 std::to_string(what[0]), "--draft-vocab", std::to_string(what[1]), "--segments",
                 std::to_string(what[2]), "--depths", std::to_string(flags.depths), "--layers",
                 std::to_string(flags.layers), "--seeds", std::to_string(seed)}));
  return parse_json(text, "a measurement");
}

constexpr double kMiB = 1024.0 * 1024.0;

// The mean over the seeds.
double mean(const std::vector<Json>& runs, const char* key) {
  double sum = 0.0;
  for (const Json& run : runs) sum += run[key].get<double>();
  return sum / static_cast<double>(runs.size());
}

Status measure_all(const BenchFlags& flags) {
  Json all = Json::array();
  print_output(
      "| rows | draft vocabulary | elements | segments | before, MiB | step, MiB | peak, MiB |"
      " step to first | peak to first | s | processor s "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int64_t rows : flags.rows) {
    for (const int64_t vocabulary : flags.vocabularies) {
      double first_step = 0.0, first_peak = 0.0;
      for (const int64_t segments : flags.segments) {
        std::vector<Json> runs;
        for (int seed = 1; seed <= flags.seeds; ++seed) {
          AERIE_ASSIGN_OR_RETURN(Json run,
                                 measure_apart(flags, {rows, vocabulary, segments}, seed));
          all.push_back(run);
          runs.push_back(std::move(run));
        }
        const double step = mean(runs, "step_bytes"), peak = mean(runs, "peak_bytes");
        if (first_step == 0.0) first_step = step, first_peak = peak;
        print_output(fmt::format(
            "| {} | {} | {:.0f} | {} | {:.0f} | {:.0f} | {:.0f} | {:.2f} | {:.2f} | {:.1f} | "
            "{:.1f} |\n",
            rows, vocabulary, mean(runs, "elements"), segments, mean(runs, "before_bytes") / kMiB,
            step / kMiB, peak / kMiB, step / first_step, peak / first_peak, mean(runs, "seconds"),
            mean(runs, "processor_seconds")));
      }
    }
  }
  return flags.json.empty() ? Status() : write_file(flags.json, all.dump(1) + "\n");
}

Status run(const BenchFlags& flags) {
  if (!flags.measure) return measure_all(flags);
  AERIE_ASSIGN_OR_RETURN(const Json result, measure(flags));
  print_output(result.dump() + "\n");
  return {};
}

}  // namespace
}  // namespace aerie::train

namespace {

int run(int argc, char** argv) {
  aerie::train::BenchFlags flags;
  CLI::App app("Aerie: memory and time of a step of P-EAGLE's training", "aerie-bench-peagle");
  app.add_option("-m,--model", flags.model, "The target: its shape is the head's")->required();
  app.add_option("--rows", flags.rows, "Tokens of the text")
      ->check(CLI::Range(3, 1 << 20))
      ->capture_default_str();
  app.add_option("--segments", flags.segments,
                 "Parts of the masked rows; the first is what others are compared with")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--draft-vocab", flags.vocabularies, "Tokens that can be drafted")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--depths", flags.depths, "Of a draft")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--layers", flags.layers, "Of the head")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--seeds", flags.seeds, "Runs of each, with different rows")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", flags.json, "A file for the figures of every run");
  app.add_flag("--measure", flags.measure)->group("");
  if (const auto ended = aerie::parse_flags<CLI::ParseError>(app, argc, argv)) return *ended;
  const aerie::Status status = aerie::train::run(flags);
  return aerie::exit_with(status.ok() ? aerie::Expected<int>(0) : status);
}

}  // namespace

int main(int argc, char** argv) {
  return aerie::run_program([&] { return run(argc, argv); });
}
