#include "launcher/rank_output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>

namespace kolo::internal {

RankOutputs::RankOutputs(const LaunchOptions& options, int size, bool colour, OutputQueue& queue)
    : directory_(options.output_directory),
      raw_(size == 1 && options.label == Label::kNone),
      queue_(queue) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back({Stream{LineMerger(make_label(options.label, rank, 1, colour)), UniqueFd()},
                      Stream{LineMerger(make_label(options.label, rank, 2, colour)), UniqueFd()}});
  }
}

Status RankOutputs::open_files() {
  if (directory_.empty()) return Status::ok();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string folder = directory_ + "/rank." + std::to_string(rank);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return resource_error("--output-filename: cannot make '" + folder + "': " + error.message());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string path = folder + (i == 0 ? "/stdout" : "/stderr");
      ranks_[rank][i].file.reset(
          ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!ranks_[rank][i].file.is_open()) {
        return resource_error("--output-filename: cannot write '" + path + "': " + strerror(errno));
      }
    }
  }
  return Status::ok();
}

RankOutputs::Stream& RankOutputs::stream_of(int rank, int number) {
  return ranks_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(number - 1)];
}

void RankOutputs::take(const RankOutput& output) {
  Stream& stream = stream_of(output.rank, output.stream);
  std::string_view left = output.data;
  while (stream.file.is_open() && !left.empty()) {
    const ssize_t written = ::write(stream.file.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      queue_.write(2, "kolorun: --output-filename: rank " + std::to_string(output.rank) +
                          "'s file ends here: " + strerror(errno) + "\n");
      stream.file.reset();
      break;
    }
    left = left.substr(static_cast<std::size_t>(written));
  }
  if (raw_) return queue_.write(output.stream, output.data);
  std::string lines;
  if (output.data.empty())
    stream.merger.finish(lines);
  else
    stream.merger.feed(output.data, lines);
  queue_.write(output.stream, std::move(lines));
}

void RankOutputs::finish(const Placement::OnHost& host) {
  for (int rank = host.first_rank; rank < host.first_rank + host.rank_count; ++rank) {
    for (const int number : {1, 2}) {
      std::string lines;
      stream_of(rank, number).merger.finish(lines);
      queue_.write(number, std::move(lines));
    }
  }
}

}  // namespace kolo::internal
