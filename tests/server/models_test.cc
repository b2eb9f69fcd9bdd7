// A server of several models, which are loaded when they are asked for.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "server/server.h"
#include "tests/server/client.h"
#include "tests/server/fake_service.h"
#include "tests/server/running_server.h"

namespace aerie::server::models_test {

using test::FakeService;
using test::Response;

// Models "a", "b", ... that say their own name, and what was done with them.
class Models {
 public:
  struct Plan {
    Status failure;     // of opening it
    int failures = 0;   // so often
    std::string reply;  // empty: the name
    std::chrono::microseconds pause{0};
  };

  Models(int count, ModelHostOptions host, std::map<std::string, Plan> plans = {})
      : plans_(std::move(plans)) {
    std::vector<ServedModel> models;
    for (int i = 0; i < count; ++i) {
      ServedModel model;
      model.names = {std::string(1, static_cast<char>('a' + i))};
      model.open = [this, name = model.names.front()](int64_t bytes) { return open(name, bytes); };
      models.push_back(std::move(model));
    }
    auto server =
        Server::start(std::make_unique<ModelHost>(std::move(models), std::move(host)), {});
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }

  Response ask(const std::string& model, const std::string& prompt = "Hi",
               const std::string& more = "") const {
    return test::exchange(server_->port(), "POST", "/v1/completions",
                          R"({"prompt":")" + prompt + R"(","model":")" + model + "\"" + more + "}");
  }
  std::string text(const std::string& model) const {
    const Response response = ask(model);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? response.json()["choices"][0]["text"].get<std::string>() : "";
  }
  // The same of somebody who asks alone. A model is let go of a moment after its answer: until then
  // it counts as used.
  std::string text_to_its_end(const std::string& model) {
    std::string said = text(model);
    EXPECT_TRUE(test::eventually([&] { return host().server().open_requests == 0; }));
    return said;
  }
  Response get(const std::string& path) const {
    return test::exchange(server_->port(), "GET", path, "");
  }
  ModelHost& host() { return server_->models(); }
  Server& server() { return *server_; }
  void stop() { server_.reset(); }

  std::string presence(size_t model) { return std::string(presence_name(host().presence(model))); }
  bool is_loaded(size_t model) { return presence(model) == "loaded"; }
  int opened(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = opened_.find(name);
    return found == opened_.end() ? 0 : found->second;
  }
  int most_at_once() const { return most_; }

 private:
  // Counts itself among those that are there.
  class Counted final : public FakeService {
   public:
    Counted(Options options, std::atomic<int>& there)
        : FakeService(std::move(options)), there_(there) {}
    ~Counted() override { --there_; }
    int64_t memory_bytes() const override { return 100; }

   private:
    std::atomic<int>& there_;
  };

  Expected<OpenedService> open(const std::string& name, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    ++opened_[name];
    Plan& plan = plans_[name];
    if (plan.failures > 0) {
      --plan.failures;
      return plan.failure;
    }
    if (bytes != 0 && bytes < 100) return resource_exhausted("{} bytes are not enough", bytes);
    FakeService::Options options = test::says(plan.reply.empty() ? "I am " + name : plan.reply);
    options.pause = plan.pause;
    const int now = ++there_;
    most_ = std::max(most_.load(), now);
    OpenedService out;
    out.service = std::make_unique<Counted>(std::move(options), there_);
    return out;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Plan> plans_;
  std::map<std::string, int> opened_;
  std::atomic<int> there_ = 0;
  std::atomic<int> most_ = 0;
  std::unique_ptr<Server> server_;
};

ModelHostOptions at_most(int models) {
  ModelHostOptions options;
  options.max_loaded = models;
  return options;
}

TEST(ModelHost, LoadsWhatIsAskedForAndKeepsWhatWasUsedLast) {
  Models models(3, at_most(2));
  EXPECT_EQ(models.opened("a"), 0);
  EXPECT_EQ(models.text_to_its_end("a"), "I am a");
  EXPECT_EQ(models.text_to_its_end("b"), "I am b");
  EXPECT_EQ(models.text_to_its_end("a"), "I am a");
  EXPECT_EQ(models.text_to_its_end("c"), "I am c");  // in the place of b
  EXPECT_TRUE(models.is_loaded(0));
  EXPECT_EQ(models.presence(1), "unloaded");
  EXPECT_EQ(models.text_to_its_end("a"), "I am a");
  EXPECT_EQ(models.opened("a"), 1);
  EXPECT_EQ(models.text_to_its_end("b"), "I am b");  // in the place of c
  EXPECT_EQ(models.opened("b"), 2);
  EXPECT_EQ(models.most_at_once(), 2);
}

TEST(ModelHost, ListsAllAndRefusesOthers) {
  Models models(2, at_most(1));
  models.text("b");
  const Json list = models.get("/v1/models").json();
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["status"]["value"], "unloaded");
  EXPECT_FALSE(list["data"][0].contains("max_model_len"));
  EXPECT_EQ(list["data"][1]["status"]["value"], "loaded");
  EXPECT_EQ(list["data"][1]["max_model_len"], 1 << 16);
  EXPECT_EQ(models.get("/api/tags").json()["models"].size(), 2u);
  EXPECT_EQ(models.get("/v1/models/c").status, 404);
  const Response other = models.ask("c");
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(other.body.find("there is a, b"), std::string::npos) << other.body;
  // Without a name it is the first; GET names it in the query.
  EXPECT_EQ(test::exchange(models.server().port(), "POST", "/v1/completions", R"({"prompt":"x"})")
                .json()["model"],
            "a");
  EXPECT_EQ(models.get("/props?model=b").status, 200);
  EXPECT_TRUE(models.is_loaded(1));
}

TEST(ModelHost, ModelsAreNotTakenAwayFromThoseWhoUseThem) {
  Models models(2, at_most(1),
                {{"a", {{}, 0, std::string(600, 'x'), std::chrono::milliseconds(1)}}});
  models.text("b");
  Response slow;
  std::thread first([&] { slow = models.ask("a", "Hi", R"(,"max_tokens":700)"); });
  EXPECT_TRUE(test::eventually([&] { return models.is_loaded(0); }));
  EXPECT_EQ(models.text("b"), "I am b");  // after it
  first.join();
  EXPECT_EQ(slow.json()["choices"][0]["text"], std::string(600, 'x'));
  EXPECT_EQ(models.most_at_once(), 1);
}

TEST(ModelHost, ManyClientsEachGetTheirOwn) {
  Models models(4, at_most(2));
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&models, i] {
      for (int k = 0; k < 6; ++k) {
        const std::string name(1, static_cast<char>('a' + (i + k * (i % 3)) % 4));
        EXPECT_EQ(models.text(name), "I am " + name);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(models.most_at_once(), 2);
}

TEST(ModelHost, OneThatCannotBeOpenedIsTriedAgainLater) {
  Models models(2, at_most(2), {{"b", {invalid_argument("its file is broken"), 1, "", {}}}});
  for (int i = 0; i < 3; ++i) {
    const Response failed = models.ask("b");
    EXPECT_EQ(failed.status, 503);
    // What is wrong with the server's files is not for its clients.
    EXPECT_EQ(failed.body.find("broken"), std::string::npos) << failed.body;
  }
  EXPECT_EQ(models.opened("b"), 1) << "not again at once";
  EXPECT_EQ(models.host().failure(1), "its file is broken");
  EXPECT_EQ(models.text("a"), "I am a");
}

TEST(ModelHost, WhereMemoryIsShortAnotherGoes) {
  ModelHostOptions options;
  options.max_bytes = 250;
  Models models(3, options);
  models.text_to_its_end("a");
  models.text_to_its_end("b");
  EXPECT_EQ(models.text_to_its_end("c"), "I am c");
  EXPECT_EQ(models.most_at_once(), 2);
  EXPECT_EQ(models.presence(0), "unloaded");
  EXPECT_EQ(models.opened("c"), 2) << "with too little, then with what the other had";
}

TEST(ModelHost, NoRoomAtAllIsSaid) {
  ModelHostOptions options;
  options.max_bytes = 50;
  Models models(1, options);
  const Response refused = models.ask("a");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("no room in memory"), std::string::npos) << refused.body;
  EXPECT_EQ(refused.json()["error"]["code"], "model_not_loaded");
}

TEST(ModelHost, IsNotLoadedForThoseWhoHaveGone) {
  Models models(2, at_most(1));
  models.text("a");
  ModelHost::Lease used = models.host().loaded(0);
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const auto called = std::make_shared<std::atomic<bool>>(false);
  models.host().use(1, gone, [called](const Expected<ModelHost::Lease>&) { *called = true; });
  // Until then "b" has no place; it has one when nobody is left who wants it.
  ASSERT_TRUE(test::eventually([&] { return models.presence(0) == "unloading"; }));
  *gone = true;
  used.reset();
  EXPECT_EQ(models.text("a"), "I am a") << "the host has gone on";
  EXPECT_EQ(models.opened("b"), 0);
  EXPECT_FALSE(*called);
}

TEST(ModelHost, WhoHasGoneAtOnceIsNotWaitedFor) {
  Models models(2, at_most(1));
  models.text("a");
  models.host().use(1, std::make_shared<std::atomic<bool>>(true), [](const auto&) {});
  EXPECT_EQ(models.text("a"), "I am a");
  EXPECT_EQ(models.opened("a"), 1);
  EXPECT_EQ(models.opened("b"), 0);
}

TEST(ModelHost, WhoWaitsIsBounded) {
  ModelHostOptions options = at_most(1);
  options.max_waiting = 2;
  Models models(2, options);
  models.text("a");
  ModelHost::Lease used = models.host().loaded(0);
  std::atomic<int> answered = 0;
  for (int i = 0; i < 2; ++i) {
    models.host().use(1, nullptr, [&](const Expected<ModelHost::Lease>& lease) {
      EXPECT_TRUE(lease.ok());
      ++answered;
    });
  }
  EXPECT_EQ(models.ask("b").status, 503);
  EXPECT_EQ(answered, 0);
  used.reset();
  EXPECT_TRUE(test::eventually([&] { return answered == 2; }));
}

TEST(ModelHost, EndsWithWhoWaits) {
  Models models(2, at_most(1));
  models.text("a");
  ASSERT_TRUE(test::eventually([&] { return models.host().server().open_requests == 0; }));
  std::vector<std::thread> clients;
  std::vector<int> statuses(3);
  clients.emplace_back([&] { statuses[0] = models.ask("a", "HANG").status; });
  EXPECT_TRUE(test::eventually([&] { return models.host().server().open_requests == 1; }));
  for (int i = 1; i < 3; ++i) {
    clients.emplace_back([&models, &statuses, i] { statuses[i] = models.ask("b").status; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  models.server().drain();
  clients[1].join();
  clients[2].join();
  EXPECT_EQ(statuses[1], 503);
  EXPECT_EQ(statuses[2], 503);
  models.stop();
  clients[0].join();
}

TEST(ModelHost, UnloadsWhatItIsToldTo) {
  Models models(2, at_most(2));
  EXPECT_EQ(models.host().unload(0).code(), StatusCode::kNotFound);
  EXPECT_TRUE(models.host().load(0).ok());
  EXPECT_TRUE(models.host().unload(0).ok());
  ASSERT_TRUE(test::eventually([&] { return models.presence(0) == "unloaded"; }));
  EXPECT_EQ(models.text("a"), "I am a");
  EXPECT_EQ(models.opened("a"), 2);
}

// Of each family there is one head, and counters do not fall when a model goes.
TEST(ModelHost, MetricsOfAllModels) {
  Models models(2, at_most(1));
  models.text("a");
  models.text("b");
  models.text("b");
  const std::string text = models.get("/metrics").body;
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("# TYPE vllm:request_success_total "), 1);
  EXPECT_EQ(count("# TYPE vllm:num_requests_running "), 1);
  EXPECT_EQ(
      count(R"(vllm:request_success_total{engine="0",model_name="a",finished_reason="stop"} 1)"), 1)
      << text;
  EXPECT_EQ(
      count(R"(vllm:request_success_total{engine="0",model_name="b",finished_reason="stop"} 2)"),
      1);
  EXPECT_EQ(count(R"(aerie:model_loaded{engine="0",model_name="a"} 0)"), 1);
  EXPECT_EQ(count(R"(aerie:model_loaded{engine="0",model_name="b"} 1)"), 1);
  // The fake one says 7 of itself.
  EXPECT_EQ(count(R"(vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a"} 7)"), 1);
}

}  // namespace aerie::server::models_test
