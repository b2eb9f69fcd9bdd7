// What was asked with which key, for Prometheus.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace aerie::server {

// By keys' names. Keys come and go with their files: of more than kMostNames names the rest are
// "other". Thread-safe.
class KeyFigures {
 public:
  static constexpr size_t kMostNames = 1000;

  void on_begin(const std::string& name);
  void on_end(const std::string& name, int64_t prompt_tokens, int64_t generated_tokens);
  // Not let through, by RateRefusal::limit.
  void on_refused(const std::string& name, std::string_view limit);

  // In the form of /metrics; empty while no key was used.
  std::string text() const;

 private:
  struct Figures {
    int64_t requests = 0;
    int64_t running = 0;
    int64_t prompt_tokens = 0;
    int64_t generated_tokens = 0;
    std::map<std::string, int64_t, std::less<>> refused;  // by limit
  };
  Figures& of(const std::string& name);

  mutable std::mutex mutex_;
  std::map<std::string, Figures> figures_;
};

}  // namespace aerie::server
