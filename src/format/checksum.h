// A fast checksum against damage; not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace aerie {

// Of bytes that begin at `offset`, a multiple of 64, of something. The checksum of the whole is the
// sum of those of its parts, so that threads can share the work; one thread goes about as fast as
// memory. Zeros at the end do not count beyond a multiple of 64: keep the length beside it.
uint64_t checksum(std::span<const std::byte> bytes, uint64_t offset = 0);

}  // namespace aerie
