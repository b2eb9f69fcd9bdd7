#include "server/http/body_room.h"

namespace aerie::server {

bool BodyRoom::take(const std::string& client, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_by_.find(client);
  const size_t own = found == taken_by_.end() ? 0 : found->second;
  if (bytes > bytes_ / 2 - std::min(own, bytes_ / 2) || bytes > bytes_ - taken_) return false;
  taken_by_[client] = own + bytes;
  taken_ += bytes;
  return true;
}

void BodyRoom::give_back(const std::string& client, size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  taken_ -= bytes;
  const auto found = taken_by_.find(client);
  found->second -= bytes;
  if (found->second == 0) taken_by_.erase(found);
}

}  // namespace aerie::server
