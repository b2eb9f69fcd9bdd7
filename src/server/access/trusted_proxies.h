// Who a request comes from, where proxies stand between.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie::server {

// Proxies whose word is taken for whom they ask for. Immutable once it is filled.
class TrustedProxies {
 public:
  // "10.0.0.7", "10.0.0.0/8", "::1", "fd00::/8".
  Status add(std::string_view network);

  bool empty() const { return networks_.empty(); }
  bool trusts(std::string_view address) const;

  // `peer`: whose connection it is. `forwarded`: X-Forwarded-For, to which each proxy adds whom it
  // was asked by: the last that no trusted proxy is, as far back as trusted ones told.
  std::string client_of(const std::string& peer, std::string_view forwarded) const;

 private:
  // IPv4 as IPv6 has it.
  using Address = std::array<unsigned char, 16>;
  struct Network {
    Address address;
    int bits;
  };
  static bool read(std::string_view text, Address& out);
  bool trusts(const Address& address) const;

  std::vector<Network> networks_;
};

}  // namespace aerie::server
