#include "hub/download/blob_fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "hub/download/file_lock.h"
#include "hub/download/hub_retry.h"

namespace aerie {
namespace {

constexpr int64_t kMuch = 1 << 20;  // of progress, which counts as a fresh start

int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

std::string incomplete_path(const HubRepo& repo, const RepoFile& file) {
  return repo.blob(file.etag) + ".incomplete";
}

// The file that is being fetched, with the digest of what it holds.
class PartialBlob {
 public:
  static Expected<std::unique_ptr<PartialBlob>> open(const std::string& path, const RepoFile& file,
                                                     Progress& progress);
  ~PartialBlob() { close(fd_); }
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  int64_t size() const { return size_; }
  const Status& status() const { return status_; }  // of the last write

  // Bytes at an offset: what a server sends again is written again from there.
  bool write(int64_t offset, std::string_view bytes);
  Status restart();
  // Gives the file its name, or says that its bytes are not those that were promised.
  Status finish(const std::string& path);

 private:
  PartialBlob(std::string path, const RepoFile& file, Progress& progress, int fd, Digest digest)
      : path_(std::move(path)),
        file_(file),
        progress_(progress),
        fd_(fd),
        digest_(std::move(digest)) {}
  Status read_begun();

  std::string path_;
  const RepoFile& file_;
  Progress& progress_;
  int fd_;
  int64_t size_ = 0;
  Digest digest_;
  Status status_;
};

Expected<std::unique_ptr<PartialBlob>> PartialBlob::open(const std::string& path,
                                                         const RepoFile& file, Progress& progress) {
  AERIE_ASSIGN_OR_RETURN(Digest digest, Digest::create(file.digest, file.size));
  const int fd = retried([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
  if (fd < 0) return system_error(path, "cannot make this file", errno);
  std::unique_ptr<PartialBlob> blob(new PartialBlob(path, file, progress, fd, std::move(digest)));
  AERIE_RETURN_IF_ERROR(blob->read_begun());
  return blob;
}

Status PartialBlob::read_begun() {
  std::vector<char> bytes(1 << 20);
  while (true) {
    const ssize_t n = retried([&] { return read(fd_, bytes.data(), bytes.size()); });
    if (n < 0) return system_error(path_, "cannot read what is there", errno);
    if (n == 0) break;
    size_ += n;
    if (size_ > file_.size) {
      size_ = 0;  // no part of the progress: begun_bytes() does not count it
      return restart();
    }
    digest_.add({bytes.data(), static_cast<size_t>(n)});
  }
  return {};
}

Status PartialBlob::restart() {
  AERIE_ASSIGN_OR_RETURN(digest_, Digest::create(file_.digest, file_.size));
  progress_.add(-size_);
  size_ = 0;
  if (retried([&] { return ftruncate(fd_, 0); }) != 0 || lseek(fd_, 0, SEEK_SET) != 0) {
    return system_error(path_, "cannot begin it again", errno);
  }
  return {};
}

bool PartialBlob::write(int64_t offset, std::string_view bytes) {
  if (offset == 0 && size_ > 0) {
    status_ = restart();
    if (!status_.ok()) return false;
  }
  if (offset != size_) {
    status_ = invalid_data("{}: the hub sends other bytes than were asked for: try again later",
                           file_.name);
    return false;
  }
  if (size_ + static_cast<int64_t>(bytes.size()) > file_.size) {
    status_ = invalid_data(
        "{}: the hub sends more than the {} bytes that it promised: try again "
        "later",
        file_.name, file_.size);
    return false;
  }
  if (const int error = write_all(fd_, bytes); error != 0) {
    status_ = system_error(path_, "cannot write it", error);
    if (error == ENOSPC || error == EDQUOT) {
      status_ = resource_exhausted(
          "{}: the disk is full; {} more bytes are wanted for this file: make room, and go on with "
          "the same command",
          path_, file_.size - size_);
    }
    return false;
  }
  digest_.add(bytes);
  size_ += static_cast<int64_t>(bytes.size());
  progress_.add(static_cast<int64_t>(bytes.size()));
  return true;
}

Status PartialBlob::finish(const std::string& path) {
  if (digest_.hex() != file_.etag) {
    AERIE_RETURN_IF_ERROR(restart());
    return invalid_data(
        "{}: what came is not what the hub promised (its digest is another), and was thrown away: "
        "try again",
        file_.name);
  }
  if (retried([&] { return fsync(fd_); }) != 0) {
    return system_error(path_, "cannot write it", errno);
  }
  if (rename(path_.c_str(), path.c_str()) != 0) {
    return system_error(path, "cannot give it this name", errno);
  }
  return {};
}

// Of an answer that is a success and says what it is of.
Status check_answer(const HubAnswer& answer, const RepoFile& file, const BlobSource& source) {
  const bool other_commit = !answer.commit.empty() && answer.commit != source.commit;
  const bool other_file = !answer.linked_etag.empty() && answer.linked_etag != file.etag;
  if (!other_commit && !other_file) return {};
  return invalid_data("{}: the hub sends another file than it listed: try again", file.name);
}

Status fetch_rest(HubHttp& http, PartialBlob& blob, const RepoFile& file, const BlobSource& source,
                  const std::atomic<bool>& stop) {
  HubRetry retry;
  while (blob.size() < file.size) {
    const int64_t before = blob.size();
    HubRequest request;
    request.url = source.url;
    request.offset = before;
    request.most_bytes = file.size;
    request.sink = [&](int64_t offset, std::string_view bytes) {
      return !stop && blob.write(offset, bytes);
    };
    const HubAnswer answer = http.get(request);
    AERIE_RETURN_IF_ERROR(blob.status());
    if (stop) return {StatusCode::kCancelled, file.name + ": another file failed"};
    const bool good = answer.status == 200 || answer.status == 206;
    if (good) AERIE_RETURN_IF_ERROR(check_answer(answer, file, source));
    if (blob.size() == file.size) break;
    if (blob.size() - before >= kMuch) retry.progress();
    if (answer.status == 416) {
      AERIE_RETURN_IF_ERROR(blob.restart());
      if (before > 0) continue;
    }
    HubAnswer failed = answer;
    if (good && failed.problem.empty()) {
      failed.problem = fmt::format("{} of {} bytes came", blob.size(), file.size);
      failed.may_pass = true;
    }
    if (!retry.again(failed, stop))
      return hub_error(failed, file.name, source.page, source.has_token);
  }
  return {};
}

}  // namespace

bool has_blob(const HubRepo& repo, const RepoFile& file) {
  return size_of(repo.blob(file.etag)) == file.size;
}

int64_t begun_bytes(const HubRepo& repo, const RepoFile& file) {
  const int64_t size = size_of(incomplete_path(repo, file));
  return size > file.size ? 0 : std::max<int64_t>(size, 0);
}

Status fetch_blob(HubHttp& http, const HubRepo& repo, const RepoFile& file,
                  const BlobSource& source, Progress& progress, const std::atomic<bool>& stop) {
  AERIE_ASSIGN_OR_RETURN(
      const FileLock lock,
      FileLock::take(
          repo.lock(file.etag),
          fmt::format("{}: another program fetches {}: waiting for it", repo.repo(), file.name)));
  if (has_blob(repo, file)) return {};
  AERIE_ASSIGN_OR_RETURN(const auto blob,
                         PartialBlob::open(incomplete_path(repo, file), file, progress));
  const bool resumed = blob->size() > 0;
  AERIE_RETURN_IF_ERROR(fetch_rest(http, *blob, file, source, stop));
  Status done = blob->finish(repo.blob(file.etag));
  // Bytes of an earlier try may be to blame.
  if (done.code() != StatusCode::kInvalidData || !resumed) return done;
  AERIE_RETURN_IF_ERROR(fetch_rest(http, *blob, file, source, stop));
  return blob->finish(repo.blob(file.etag));
}

}  // namespace aerie
