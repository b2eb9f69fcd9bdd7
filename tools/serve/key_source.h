// Where `aerie serve` has its API keys from.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/http/api_keys.h"

namespace aerie {

// One thread at a time.
class KeySource {
 public:
  std::vector<std::string> files;  // --api-key-file
  std::vector<std::string> keys;   // --api-key

  // All of them, as the files are now.
  Expected<server::ApiKeys> read();

  // Whether a file is another than read() saw. Files are looked at once a second, and one that
  // changes has to stay the same for a second, so that none is read while it is written.
  bool has_changed(SteadyTime now);

 private:
  std::string look() const;

  std::string read_state_;
  std::string last_state_;
  SteadyTime looked_ = {};
};

}  // namespace aerie
