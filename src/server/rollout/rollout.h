// Which setting of speculation requests get that name none, and how a new one takes its place.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include "base/status.h"
#include "draft/speculative_config.h"
#include "engine/service.h"
#include "server/rollout/rollout_rule.h"

namespace aerie::server {

// Of a model in memory. Thread-safe; the service must outlive it.
class Rollout {
 public:
  using Log = std::function<void(const std::string& line)>;

  // `log` (may be null) hears of every step. `seed`: of who is drawn for a trial.
  Rollout(Service& service, Log log, uint64_t seed = std::random_device{}())
      : service_(service), log_(std::move(log)), random_(seed) {}

  // For a request: its setting, and the group that it counts for.
  struct Ticket {
    int speculation = 0;
    uint64_t canary = 0;  // which one was under way; 0: none, and it does not count
    bool is_candidate = false;
    int shadow = -1;        // Request::shadow
    uint64_t on_paper = 0;  // which shadow; 0: none
  };
  Ticket draw();
  void on_end(const Ticket& ticket, const ReplyEnd& end);

  // Begins with a further setting (a short form of draft/speculative_config.h), which is opened
  // here. kInvalidArgument while one is under way or for a rule that cannot be, and the errors of
  // Service::add_speculation().
  Status begin(const std::string& speculate, RolloutRule rule);
  // By hand: the candidate is what requests get from now on. kNotFound without one.
  Status promote();
  // By hand: ends a canary, or takes back the last promotion. kNotFound if there is neither.
  Status roll_back();

  // Has a share of the requests drafted for by a further setting on paper alone, whether that
  // would pay or not. Errors are begin()'s, and kInvalidArgument for "auto".
  Status begin_shadow(const std::string& speculate, double share);
  // kNotFound if there is none.
  Status end_shadow();

  // Whether something would be lost with the service.
  bool is_in_use() const;

  // Of the requests that a setting drafted for on paper.
  struct ShadowFigures {
    std::string name;  // empty: there is none
    double share = 0.0;
    int64_t replies = 0;
    ShadowStats on_paper;
    int64_t rounds = 0;  // what they had in earnest
    int64_t round_tokens = 0;
  };

  struct State {
    std::string present;    // the setting that requests get
    std::string candidate;  // empty: none is under way
    double share = 0.0;     // of requests, that get the candidate
    size_t step = 0;
    RolloutRule rule;
    SettingFigures present_figures, candidate_figures;  // since the canary began
    Speedup speedup;                                    // of the candidate
    std::string last;  // what was decided last, and why; empty: nothing yet
    ShadowFigures shadow;
    int64_t promotions = 0;
    int64_t roll_backs = 0;
  };
  State state() const;

 private:
  struct Canary {
    uint64_t number = 0;
    int speculation = 0;
    std::string name;
    RolloutRule rule;
    size_t step = 0;
    int64_t replies_in_step = 0;
    SettingFigures present, candidate;
  };

  struct Shadow {
    uint64_t number = 0;
    int speculation = 0;
    ShadowFigures figures;
  };

  Expected<int> open(const SpeculativeConfig& config);
  // With the lock.
  void say(const std::string& line);
  void end_promoted(const std::string& why);
  void end_rolled_back(const std::string& why);
  std::string name_of(int speculation) const;

  Service& service_;
  const Log log_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  bool opening_ = false;
  uint64_t canaries_ = 0;
  int present_ = 0;
  std::optional<int> former_;  // before the last promotion
  std::optional<Canary> canary_;
  std::optional<Shadow> shadow_;
  std::string last_;
  int64_t promotions_ = 0;
  int64_t roll_backs_ = 0;
};

}  // namespace aerie::server
