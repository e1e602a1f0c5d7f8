#include "bench/peers/settings.h"

#include <getopt.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "bench/common/usage.h"

namespace kolo::bench {
namespace {

constexpr std::size_t kKi = std::size_t{1} << 10;
constexpr std::size_t kMi = std::size_t{1} << 20;

constexpr std::string_view kHelp =
    R"(allreduce_peers: kolo's all-reduce beside that of others, on this machine over loopback TCP.
All are run in turn, round by round; each round is a fresh job whose figure is the median of its
batches, and the table shows the median of the rounds. Results are checked on every system.

  -n, --ranks N       ranks of each job (2)
  -b, --begin SIZE    smallest size (default: 8, 1K, 64K, 1M, 16M and 64M)
  -e, --end SIZE      largest size
  -f, --factor N      from one size to the next (2)
  -r, --rounds N      rounds of each system (7)
  -p, --peers LIST    some of kolo,gloo,mpich (all that are built)
  -t, --budget-ms N   time for each size in a round (500)
      --latency       single 8-byte calls instead: p50 and p99
      --idle[=S]      instead: CPU time of kolo's idle ranks during S seconds (10)
  -j, --json FILE     also append the results to FILE, one JSON object a line
  -h, --help          this text
)";

enum LongOnly { kLatency = 256, kIdle };

constexpr option kOptions[] = {{"ranks", required_argument, nullptr, 'n'},
                               {"begin", required_argument, nullptr, 'b'},
                               {"end", required_argument, nullptr, 'e'},
                               {"factor", required_argument, nullptr, 'f'},
                               {"rounds", required_argument, nullptr, 'r'},
                               {"peers", required_argument, nullptr, 'p'},
                               {"budget-ms", required_argument, nullptr, 't'},
                               {"latency", no_argument, nullptr, kLatency},
                               {"idle", optional_argument, nullptr, kIdle},
                               {"json", required_argument, nullptr, 'j'},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};

std::size_t parse_size(const std::string& what, const std::string& text) {
  const std::size_t bytes = bytes_option(what, text);
  if (bytes == 0 || bytes % sizeof(float) != 0) {
    usage_error(what + " wants a multiple of 4 bytes, not '" + text + "'");
  }
  return bytes;
}

std::vector<std::string> parse_peers(const std::string& text) {
  std::vector<std::string> peers;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    peers.push_back(text.substr(begin, end - begin));
    if (peers.back() != "kolo" && peers.back() != "gloo" && peers.back() != "mpich") {
      usage_error("--peers knows kolo, gloo and mpich, not '" + peers.back() + "'");
    }
    begin = end + 1;
  }
  return peers;
}

std::vector<std::size_t> sizes_between(std::optional<std::size_t> begin,
                                       std::optional<std::size_t> end, std::size_t factor) {
  if (!begin && !end) return {8, kKi, 64 * kKi, kMi, 16 * kMi, 64 * kMi};
  const std::size_t first = begin ? *begin : std::min<std::size_t>(8, *end);
  const std::size_t last = end ? *end : first;
  if (last < first) usage_error("-e is smaller than -b");
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = first; bytes <= last; bytes *= factor) sizes.push_back(bytes);
  return sizes;
}

}  // namespace

Settings parse_settings(int argc, char** argv) {
  Settings settings;
  std::optional<std::size_t> begin;
  std::optional<std::size_t> end;
  std::size_t factor = 2;
  int letter = 0;
  while ((letter = ::getopt_long(argc, argv, "n:b:e:f:r:p:t:j:h", kOptions, nullptr)) != -1) {
    switch (letter) {
      case 'n': settings.ranks = whole_option("--ranks", optarg, 2, 64); break;
      case 'b': begin = parse_size("--begin", optarg); break;
      case 'e': end = parse_size("--end", optarg); break;
      case 'f': factor = number_option("--factor", optarg, 2, 1 << 20); break;
      case 'r': settings.rounds = whole_option("--rounds", optarg, 1, 1000); break;
      case 'p':
        settings.peers = parse_peers(optarg);
        settings.peers_named = true;
        break;
      case 't':
        settings.budget =
            std::chrono::milliseconds(number_option("--budget-ms", optarg, 1, 60'000));
        break;
      case kLatency: settings.mode = Work::Mode::kLatency; break;
      case kIdle:
        settings.mode = Work::Mode::kIdle;
        if (optarg != nullptr) {
          settings.idle_time = std::chrono::seconds(number_option("--idle", optarg, 1, 3600));
        }
        break;
      case 'j': settings.json = optarg; break;
      case 'h': std::cout << kHelp; std::exit(0);
      default: usage_error("try --help");
    }
  }
  if (optind < argc) usage_error("unexpected '" + std::string(argv[optind]) + "'; try --help");
  if (settings.mode == Work::Mode::kIdle) {
    settings.peers = {"kolo"};
    settings.rounds = 1;
  }
  settings.sizes = sizes_between(begin, end, factor);
  return settings;
}

}  // namespace kolo::bench
