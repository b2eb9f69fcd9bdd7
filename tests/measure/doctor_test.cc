#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "draft/heads/heads.h"
#include "kv/kv_cache.h"
#include "measure/doctor/doctor_report.h"
#include "measure/models/make_head.h"
#include "model/import/hugging_face_file.h"
#include "model/model.h"
#include "tests/measure/models.h"
#include "tests/testing/system_files.h"

namespace aerie::measure::doctor_test {

namespace fs = std::filesystem;
using kernels::Dot;
using kernels::Isa;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

using Root = test::SystemFiles;

TEST_F(Root, HugePagesAndFeatures) {
  EXPECT_EQ(transparent_huge_pages(root_), "");
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(transparent_huge_pages(root_), "madvise");
  EXPECT_THAT(processor_features(root_), IsEmpty());
  write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t: x\n");
  EXPECT_THAT(processor_features(root_), ElementsAre("fpu", "avx2"));
  write("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimddp\n");
  EXPECT_THAT(processor_features(root_), ElementsAre("fp", "asimddp"));
}

TEST_F(Root, Memory) {
  write("/proc/meminfo",
        "MemTotal:  4096 kB\nHugePages_Total:  0\nMemAvailable:  2048 kB\nSwapTotal: 512 kB\n"
        "SwapFree: 128 kB\n");
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "1048576\n");
  write("/sys/fs/cgroup/memory.current", "48576\n");
  const MachineFacts facts = read_machine_facts(3, root_);
  EXPECT_EQ(facts.threads, 3);
  EXPECT_EQ(facts.memory, 4 << 20);
  EXPECT_EQ(facts.free_memory, 2 << 20);
  EXPECT_EQ(facts.group_memory, 1000000);
  EXPECT_EQ(facts.available, 1000000);
  EXPECT_EQ(facts.swap, 512 << 10);
  write("/sys/fs/cgroup/memory.max", "9223372036854771712\n");
  EXPECT_EQ(read_machine_facts(1, root_).group_memory, -1);
  EXPECT_EQ(facts.free_swap, 128 << 10);
  EXPECT_GE(facts.topology.usable, 1);
}

TEST(Doctor, AFolderThatIsNotThereHasTheSpaceOfWhereItWouldBe) {
  const Folder there = folder_facts("x", testing::TempDir());
  const Folder missing = folder_facts("x", testing::TempDir() + "no/such/folder");
  EXPECT_GT(there.free, 0);
  EXPECT_GT(missing.free, 0);
}

// Of which nothing is to be said.
MachineFacts sound_machine() {
  MachineFacts m;
  m.processor = "Test";
  m.features = {"avx2", "avx512bw", "avx512_vnni"};
  m.isa = Isa::kAvx512;
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx512Bw, Isa::kAvx2, Isa::kReference}) {
    m.built.emplace_back(kernels::isa_name(isa));
  }
  m.topology.processors = m.topology.usable = m.threads = 4;
  m.topology.cores = m.topology.performance_cores = 4;
  m.huge_pages = "madvise";
  m.memory = 16 * kGiB;
  m.free_memory = m.available = 8 * kGiB;
  m.swap = 0;
  return m;
}

// The only one that is not good; an empty one if there is none.
Finding only_problem(const MachineFacts& machine) {
  Finding found{Severity::kGood, "", "", ""};
  int count = 0;
  for (const Finding& finding : machine_findings(machine)) {
    if (finding.severity == Severity::kGood) continue;
    found = finding;
    ++count;
  }
  EXPECT_LE(count, 1);
  return found;
}

TEST(Doctor, ASoundMachineHasNoProblem) {
  EXPECT_EQ(only_problem(sound_machine()).what, "");
}

TEST(Doctor, InstructionsThatTheBuildLacks) {
  MachineFacts m = sound_machine();
  m.built.erase(m.built.begin());
  EXPECT_EQ(only_problem(m).severity, Severity::kProblem);
  EXPECT_THAT(only_problem(m).what, HasSubstr("avx512"));
  m.built = {"reference"};
  m.features = {"sse2"};
  m.isa = Isa::kReference;
  EXPECT_THAT(only_problem(m).what, HasSubstr("no vector instructions"));
  m = sound_machine();
  m.features.insert(m.features.end(), {"amx_bf16", "amx_tile"});
  EXPECT_THAT(unused_features(m), ElementsAre("amx_bf16"));
  EXPECT_EQ(only_problem(m).what, "");
  m.features.emplace_back("amx_int8");
  EXPECT_THAT(only_problem(m).what, HasSubstr("amx"));
  m.built.emplace_back(kernels::isa_name(Isa::kAmx));
  EXPECT_EQ(only_problem(m).what, "");
}

TEST(Doctor, ThreadsAndProcessors) {
  MachineFacts m = sound_machine();
  m.topology.quota = 2.5;
  EXPECT_EQ(only_problem(m).severity, Severity::kProblem);
  EXPECT_THAT(only_problem(m).advice, HasSubstr("--threads 2"));
  m.threads = 2;
  EXPECT_EQ(only_problem(m).what, "");
  m.threads = 1;
  m.topology.quota = 0.5;
  EXPECT_THAT(only_problem(m).advice, AllOf(HasSubstr("quota"), Not(HasSubstr("--threads"))));
  m = sound_machine();
  m.threads = 8;
  EXPECT_THAT(only_problem(m).advice, HasSubstr("--threads 4"));
  m.threads = 2;
  EXPECT_EQ(only_problem(m).severity, Severity::kHint);
  EXPECT_THAT(only_problem(m).advice, HasSubstr("--threads 4"));
  m = sound_machine();
  m.topology.processors = 8;
  EXPECT_THAT(only_problem(m).what, HasSubstr("4 of 8"));
  // As many as the quota pays for are as many as there should be.
  m = sound_machine();
  m.topology.quota = 2;
  m.threads = 2;
  EXPECT_EQ(only_problem(m).what, "");
}

TEST(Doctor, ThreadsAndCores) {
  MachineFacts m = sound_machine();
  m.topology.cores = m.topology.performance_cores = m.threads = 2;
  EXPECT_EQ(only_problem(m).what, "");
  m.threads = 4;
  EXPECT_EQ(only_problem(m).severity, Severity::kHint);
  EXPECT_THAT(only_problem(m).what, HasSubstr("4 processors, 2 cores"));
  EXPECT_THAT(only_problem(m).advice, HasSubstr("--threads 2"));
  m.topology.cores = 4;
  EXPECT_THAT(only_problem(m).why, HasSubstr("efficiency core"));
  m.threads = 1;
  EXPECT_THAT(only_problem(m).advice, HasSubstr("--threads 2"));
}

TEST(Doctor, SaysWhichProcessorsThereAre) {
  Diagnosis d;
  d.machine = sound_machine();
  d.machine.threads_reason = "because";
  const auto text = [&] { return to_text(d, {}); };
  EXPECT_THAT(text(), HasSubstr("4 on, 4 usable, no quota; 4 cores\n"));
  EXPECT_THAT(text(), HasSubstr("4: because\n"));
  Topology& t = d.machine.topology;
  t.quota = 1.5;
  t.performance_cores = 3;
  t.l3_cores = {3, 1};
  t.nodes = {{0, {0, 1, 2}}, {1, {3}}};
  EXPECT_THAT(text(), HasSubstr("time of 1.50; 4 cores, 3 for performance; cores that share an "
                                "L3: 3, 1; 2 memory nodes\n"));
  const auto json = nlohmann::json::parse(to_json(d, {})).at("machine");
  EXPECT_EQ(json.at("performance_cores"), 3);
  EXPECT_EQ(json.at("l3_cores"), (std::vector<int>{3, 1}));
  EXPECT_EQ(json.at("threads_reason"), "because");
}

TEST(Doctor, PagesSwapAndFolders) {
  MachineFacts m = sound_machine();
  m.huge_pages = "never";
  EXPECT_THAT(only_problem(m).what, HasSubstr("switched off"));
  m.huge_pages = "";
  EXPECT_THAT(only_problem(m).what, HasSubstr("no transparent huge pages"));
  m = sound_machine();
  m.swap = 4 * kGiB;
  m.free_swap = 3 * kGiB;
  EXPECT_EQ(only_problem(m).what, "");
  m.free_swap = kGiB;
  EXPECT_THAT(only_problem(m).what, HasSubstr("swap"));
  m = sound_machine();
  m.folders = {{"temporary files", "/tmp", 2 * kGiB}, {"models", "/models", kGiB / 2}};
  EXPECT_THAT(only_problem(m).what, HasSubstr("/models has 0.50 GiB"));
}

ModelFacts some_model() {
  ModelFacts model;
  model.path = "m.gguf";
  model.type = "bf16";
  model.context = 4096;
  model.weight_bytes = 2 * kGiB;
  model.cache_bytes = kGiB;
  model.work.weight_bytes = 2'000'000'000;
  model.work.row_operations[static_cast<size_t>(Dot::kBfloat)] = 2e9;
  ConvertedWork converted{"q8_0", {}};
  converted.work.weight_bytes = 1'000'000'000;
  converted.work.row_operations[static_cast<size_t>(Dot::kInt8)] = 2e9;
  model.conversions = {converted};
  return model;
}

TEST(Doctor, WhetherItFits) {
  MachineFacts m = sound_machine();
  const auto finding = [&] { return memory_findings(some_model(), m).at(0); };
  EXPECT_EQ(finding().severity, Severity::kGood);
  m.available = 3 * kGiB + kGiB / 8;
  EXPECT_EQ(finding().severity, Severity::kProblem);
  m.available = 2 * kGiB + kGiB / 2;
  EXPECT_EQ(finding().severity, Severity::kFatal);
  EXPECT_THAT(finding().advice, HasSubstr("--ctx 1792"));  // nine tenths of half, in steps of 64
  m.available = kGiB;
  EXPECT_THAT(finding().advice, HasSubstr("smaller model"));
  m.available = -1;
  EXPECT_THAT(memory_findings(some_model(), m), IsEmpty());
}

TEST(Doctor, DraftersCount) {
  MachineFacts m = sound_machine();
  ModelFacts model = some_model();
  m.available = 5 * kGiB;
  EXPECT_EQ(memory_findings(model, m).at(0).severity, Severity::kGood);
  model.drafters = {{"draft_model", "d.gguf", kGiB, kGiB, kGiB / 2}};
  EXPECT_EQ(model.bytes(), 5 * kGiB + kGiB / 2);
  const Finding finding = memory_findings(model, m).at(0);
  EXPECT_EQ(finding.severity, Severity::kFatal);
  EXPECT_THAT(finding.what, HasSubstr("the model and its drafters do not fit: 5.50 GiB"));
  EXPECT_THAT(finding.advice, HasSubstr("--ctx 2752"));  // nine tenths of 1.5 GiB in 2
  Diagnosis d;
  d.machine = m;
  d.model = model;
  diagnose(d);
  EXPECT_FALSE(d.can_run());
  EXPECT_THAT(to_text(d, {}),
              HasSubstr("draft_model, d.gguf: 2.5 GiB: 1.0 GiB of weights, 1.0 GiB of cache"));
  const auto json = nlohmann::json::parse(to_json(d, {}));
  EXPECT_EQ(json["model"]["bytes"], model.bytes());
  EXPECT_EQ(json["model"]["drafters"][0]["weight_bytes"], kGiB);
}

Diagnosis diagnosed(double bandwidth, double operations) {
  Diagnosis d;
  d.machine = sound_machine();
  d.model = some_model();
  d.limits.emplace();
  d.limits->bandwidth = bandwidth;
  d.limits->dots.fill(operations);
  diagnose(d);
  return d;
}

TEST(Doctor, SpeedsAreThoseOfTheFloor) {
  const Diagnosis d = diagnosed(20e9, 80e9);  // 100 ms to read, 25 ms to multiply for each row
  ASSERT_EQ(d.passes.size(), 3u);
  EXPECT_EQ(d.pass_context, 1024);
  EXPECT_DOUBLE_EQ(d.passes[0].seconds, 0.1);
  EXPECT_DOUBLE_EQ(d.passes[1].seconds, 0.1);
  EXPECT_DOUBLE_EQ(d.passes[2].seconds, 0.2);
  EXPECT_TRUE(d.passes[0].by_memory);
  EXPECT_FALSE(d.passes[2].by_memory);
  EXPECT_TRUE(d.can_run());
  const std::string text = to_text(d, {{"aerie", "1.2.3"}});
  EXPECT_THAT(text, AllOf(HasSubstr("aerie 1.2.3"), HasSubstr("10.0 tokens/s"),
                          HasSubstr("bound by reading memory"), HasSubstr("--speculate auto"),
                          HasSubstr("q8_0 weights could decode up to 2.0 times as fast")));
  EXPECT_THAT(to_text(diagnosed(200e9, 80e9), {}),
              AllOf(HasSubstr("bound by multiplying"), Not(HasSubstr("q8_0 weights"))));
}

TEST(Doctor, DevicesAreNamed) {
  Diagnosis d = diagnosed(20e9, 80e9);
  d.machine.no_devices = "there is no driver";
  EXPECT_THAT(to_text(d, {}), AllOf(HasSubstr("Devices:       none: there is no driver\n"),
                                    Not(HasSubstr("On a device:"))));
  auto json = nlohmann::json::parse(to_json(d, {}));
  EXPECT_EQ(json["machine"]["devices"].size(), 0u);
  EXPECT_EQ(json["machine"]["no_devices"], "there is no driver");
  d.machine.no_devices = "";
  d.machine.devices = {{"cuda:0", "Test GPU", 80 * kGiB, 60 * kGiB, 132, "9.0"}};
  d.model->device_weight_bytes = kGiB;
  d.model->device_work_bytes = kGiB / 2;
  EXPECT_THAT(to_text(d, {}), AllOf(HasSubstr("cuda:0: Test GPU, capability 9.0, 132 processors, "
                                              "60.0 GiB of 80.0 GiB free"),
                                    HasSubstr("On a device:   1.5 GiB: 1.0 GiB of weights")));
  json = nlohmann::json::parse(to_json(d, {}));
  EXPECT_EQ(json["machine"]["devices"][0]["device"], "cuda:0");
  EXPECT_EQ(json["model"]["device"]["weight_bytes"], kGiB);
  d.model->device_status = Status(StatusCode::kUnsupported, "no code for it");
  EXPECT_THAT(to_text(d, {}), HasSubstr("On a device:   no code for it\n"));
}

TEST(Doctor, TheWorstComesFirst) {
  Diagnosis d;
  d.machine = sound_machine();
  d.machine.threads = 2;
  d.machine.huge_pages = "never";
  d.model_status = Status(StatusCode::kNotFound, "no such model");
  diagnose(d);
  EXPECT_FALSE(d.can_run());
  ASSERT_EQ(d.findings.size(), 3u);
  EXPECT_EQ(d.findings[0].what, "no such model");
  EXPECT_EQ(d.findings[1].severity, Severity::kProblem);
  EXPECT_EQ(d.findings[2].severity, Severity::kHint);
  const auto json = nlohmann::json::parse(to_json(d, {{"aerie", "1"}}));
  EXPECT_EQ(json["can_run"], false);
  EXPECT_TRUE(json["limits"].is_null());
  EXPECT_TRUE(json["model"].is_null());
  EXPECT_EQ(json["findings"][0]["severity"], "fatal");
  EXPECT_EQ(json["versions"]["aerie"], "1");
}

TEST(Doctor, FactsOfAModel) {
  ThreadPool pool(1);
  const MadeModel model("tiny", DType::kBF16);
  const auto facts = read_model_facts(model.path(), 128, Isa::kReference, pool);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->family, "llama");
  EXPECT_EQ(facts->type, "bf16");
  EXPECT_EQ(facts->context, 128);
  EXPECT_GT(facts->weight_bytes, 0);
  EXPECT_GT(facts->cache_bytes, 0);
  EXPECT_GT(facts->work_bytes, 0);
  EXPECT_TRUE(facts->device_status.ok()) << facts->device_status.message();
  EXPECT_GT(facts->device_weight_bytes, 0);
  EXPECT_GT(facts->device_cache_bytes, 0);
  EXPECT_GT(facts->device_work_bytes, 0);
  ASSERT_EQ(facts->conversions.size(), 2u);
  EXPECT_LT(facts->conversions[0].work.weight_bytes, facts->work.weight_bytes);
  EXPECT_LT(facts->conversions[1].work.weight_bytes, facts->conversions[0].work.weight_bytes);
  const MadeModel quantised("tiny", DType::kQ4_0);
  EXPECT_THAT(read_model_facts(quantised.path(), 0, Isa::kReference, pool)->conversions, IsEmpty());
  EXPECT_EQ(read_model_facts(model.path(), 1 << 20, Isa::kReference, pool).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(read_model_facts("/no/such.gguf", 0, Isa::kReference, pool).status().code(),
            StatusCode::kNotFound);
}

// What is told of a head is what it has once it is loaded.
TEST(Doctor, FactsOfHeads) {
  constexpr int kContext = 128;
  ThreadPool pool(1);
  const MadeModel made("tiny", DType::kQ8_0);
  const auto file = open_model_file(made.path());
  ASSERT_TRUE(file.ok());
  ModelOptions model_options;
  model_options.backend = kernels::backend(Isa::kReference);
  model_options.pool = &pool;
  model_options.max_positions = kContext;
  const auto model = load_model(**file, model_options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  HeadTarget target;
  target.parts = (*model)->parts();
  target.config = &(*model)->config();
  target.file = file->get();
  target.backend = model_options.backend;
  target.pool = &pool;
  target.max_positions = kContext;
  for (const std::string_view kind : head_kinds()) {
    MakeHeadOptions options;
    options.kind = kind;
    options.output = fmt::format("{}doctor_{}_{}", testing::TempDir(), kind, getpid());
    ASSERT_TRUE(make_head(options, *target.config).ok());
    const auto speculation = parse_speculative_spec(
        fmt::format("ngram,{}:model={}", method_of_kind(kind), options.output));
    const auto facts = read_model_facts(made.path(), kContext, Isa::kReference, pool, *speculation);
    ASSERT_TRUE(facts.ok()) << facts.status().message();
    ASSERT_EQ(facts->drafters.size(), 1u) << kind;
    const DrafterFacts& told = facts->drafters[0];
    EXPECT_EQ(told.method, method_of_kind(kind));
    const auto head_file = HeadFile::open(options.output, {});
    const auto head = load_head(method_of_kind(kind), **head_file, target, {});
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_EQ(told.weight_bytes, packed_weight_bytes(**head_file, *target.backend));
    EXPECT_EQ(told.cache_bytes, KvCache::bytes_needed((*head)->cache_config(), kContext)) << kind;
    fs::remove_all(options.output);
  }
}

TEST(Doctor, FactsOfADraftModel) {
  ThreadPool pool(1);
  const MadeModel model("tiny", DType::kQ8_0);
  const auto facts_with = [&](const std::string& speculation) {
    return read_model_facts(model.path(), 128, Isa::kReference, pool,
                            *parse_speculative_spec(speculation));
  };
  const auto facts = facts_with("draft_model:model=" + model.path());
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  ASSERT_EQ(facts->drafters.size(), 1u);
  EXPECT_EQ(facts->drafters[0].weight_bytes, facts->weight_bytes);
  EXPECT_GT(facts->drafters[0].cache_bytes, 0);
  EXPECT_GT(facts->drafters[0].work_bytes, 0);
  EXPECT_THAT(facts_with("auto")->drafters, IsEmpty());
  EXPECT_THAT(facts_with("eagle3:model=/no/such/head").status().message(),
              HasSubstr("eagle3: /no/such"));
}

TEST(Doctor, AHeadIsNoModel) {
  ThreadPool pool(1);
  const MadeModel model("tiny", DType::kQ8_0);
  const auto file = open_model_file(model.path());
  ASSERT_TRUE(file.ok());
  MakeHeadOptions options;
  options.kind = "eagle3";
  options.output = testing::TempDir() + "doctor_head_" + std::to_string(getpid());
  ASSERT_TRUE(make_head(options, *read_model_config(**file)).ok());
  const Status status = read_model_facts(options.output, 0, Isa::kReference, pool).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("is a draft head"), HasSubstr("--speculate")));
  fs::remove_all(options.output);
}

}  // namespace aerie::measure::doctor_test
