// RankOutputs: takes the pieces of the ranks' streams to kolorun's own, line by line, and to files
// where asked for. One thread.
#pragma once

#include <array>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "launcher/hosts.h"
#include "launcher/line_merger.h"
#include "launcher/options.h"
#include "launcher/output_queue.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

class RankOutputs {
 public:
  RankOutputs(const LaunchOptions& options, int size, bool colour, OutputQueue& queue);

  // Makes --output-filename's folders and files, if asked for.
  Status open_files();
  void take(const RankOutput& output);
  // The host is done: unfinished lines of its ranks are given out.
  void finish(const Placement::OnHost& host);

 private:
  struct Stream {
    LineMerger merger;
    UniqueFd file;
  };
  using RankStreams = std::array<Stream, 2>;
  Stream& stream_of(int rank, int number);

  std::string directory_;
  bool raw_;  // one rank without labels: bytes pass as they come
  std::vector<RankStreams> ranks_;
  OutputQueue& queue_;
};

}  // namespace kolo::internal
