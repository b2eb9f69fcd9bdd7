#include "server/access/trusted_proxies.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "base/errors.h"

namespace aerie::server {
namespace {

constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_v4(const std::array<unsigned char, 16>& address) {
  return std::equal(std::begin(kMapped), std::end(kMapped), address.begin());
}

std::string address_text(const std::array<unsigned char, 16>& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v4 = is_v4(address);
  inet_ntop(v4 ? AF_INET : AF_INET6, address.data() + (v4 ? 12 : 0), text, sizeof(text));
  return text;
}

bool same_bits(const unsigned char* a, const unsigned char* b, int bits) {
  if (!std::equal(a, a + bits / 8, b)) return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

std::string_view without_spaces(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Some proxies name the port, too: 192.0.2.1:80, [2001:db8::1]:80.
std::string_view without_port(std::string_view text) {
  if (text.starts_with('[')) return text.substr(1, text.find(']') - 1);
  const size_t colon = text.find(':');
  const bool is_only = colon != std::string_view::npos && text.rfind(':') == colon;
  return is_only ? text.substr(0, colon) : text;
}

}  // namespace

bool TrustedProxies::read(std::string_view text, Address& out) {
  if (text.size() >= INET6_ADDRSTRLEN) return false;
  const std::string name(text);
  std::copy(std::begin(kMapped), std::end(kMapped), out.begin());
  return inet_pton(AF_INET, name.c_str(), out.data() + 12) == 1 ||
         inet_pton(AF_INET6, name.c_str(), out.data()) == 1;
}

Status TrustedProxies::add(std::string_view network) {
  Network one = {};
  const size_t slash = network.find('/');
  bool good = read(network.substr(0, slash), one.address);
  const int most = is_v4(one.address) ? 32 : 128;
  one.bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view bits = network.substr(slash + 1);
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), one.bits);
    good = good && error == std::errc() && end == bits.data() + bits.size() && one.bits >= 0 &&
           one.bits <= most;
  }
  if (!good) {
    return invalid_argument(
        "{}: no address or network: give one such as 10.0.0.7, 10.0.0.0/8 or ::1", network);
  }
  one.bits += 128 - most;
  networks_.push_back(one);
  return {};
}

bool TrustedProxies::trusts(const Address& address) const {
  return std::ranges::any_of(networks_, [&](const Network& one) {
    return same_bits(one.address.data(), address.data(), one.bits);
  });
}

bool TrustedProxies::trusts(std::string_view address) const {
  Address read_address = {};
  return read(address, read_address) && trusts(read_address);
}

std::string TrustedProxies::client_of(const std::string& peer, std::string_view forwarded) const {
  if (!trusts(peer)) return peer;
  std::string client = peer;
  while (!forwarded.empty()) {
    const size_t comma = forwarded.rfind(',');
    const size_t from = comma == std::string_view::npos ? 0 : comma + 1;
    Address address = {};
    // What is no address, nobody trusted has said of whom it was asked by.
    if (!read(without_port(without_spaces(forwarded.substr(from))), address)) break;
    client = address_text(address);
    if (!trusts(address)) break;
    forwarded = forwarded.substr(0, from == 0 ? 0 : from - 1);
  }
  return client;
}

}  // namespace aerie::server
