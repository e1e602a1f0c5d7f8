#include "bench/kolo_bench/options.h"

#include <getopt.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string_view>

#include "bench/common/usage.h"
#include "bench/kolo_bench/help.h"

namespace kolo::bench {
namespace {

enum LongOnly {
  kRefill = 256,
  kMemory,
  kLatency,
  kGradients,
  kShuffle,
  kPersistent,
  kSeed,
  kJson,
  kCounters,
  kSpoil,
  kFirstOfDriver,  // options that are not handed on to the ranks
  kPeer = kFirstOfDriver,
  kRanks,
  kRounds,
  kMpichTcp,
};

// The first colon: an option that lacks its value is told apart from an unknown one.
constexpr const char* kLetters = ":b:e:f:i:n:w:c:d:o:r:h";
constexpr option kOptions[] = {{"minbytes", required_argument, nullptr, 'b'},
                               {"maxbytes", required_argument, nullptr, 'e'},
                               {"stepfactor", required_argument, nullptr, 'f'},
                               {"stepbytes", required_argument, nullptr, 'i'},
                               {"iters", required_argument, nullptr, 'n'},
                               {"warmup_iters", required_argument, nullptr, 'w'},
                               {"check", required_argument, nullptr, 'c'},
                               {"datatype", required_argument, nullptr, 'd'},
                               {"op", required_argument, nullptr, 'o'},
                               {"root", required_argument, nullptr, 'r'},
                               {"refill", no_argument, nullptr, kRefill},
                               {"memory", required_argument, nullptr, kMemory},
                               {"latency", no_argument, nullptr, kLatency},
                               {"gradients", required_argument, nullptr, kGradients},
                               {"shuffle", required_argument, nullptr, kShuffle},
                               {"persistent", no_argument, nullptr, kPersistent},
                               {"seed", required_argument, nullptr, kSeed},
                               {"json", required_argument, nullptr, kJson},
                               {"counters", no_argument, nullptr, kCounters},
                               {"test-spoil", no_argument, nullptr, kSpoil},
                               {"peer", required_argument, nullptr, kPeer},
                               {"np", required_argument, nullptr, kRanks},
                               {"ranks", required_argument, nullptr, kRanks},
                               {"rounds", required_argument, nullptr, kRounds},
                               {"mpich-tcp", no_argument, nullptr, kMpichTcp},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};

constexpr std::size_t kMostCalls = 100'000'000;
constexpr std::size_t kLargestSeed = 0x7fffffff;

// What was said, before the defaults that depend on each other.
struct Said {
  std::optional<std::size_t> min_bytes, max_bytes, factor, step_bytes;
  std::optional<int> iterations, warmups;
  std::optional<std::string> driver_option;  // the first that only a driver has
  std::string dtype = "float32";
  std::string op = "sum";
  bool op_said = false;
};

Memory parse_memory(std::string_view text) {
  if (text == "malloc") return Memory::kMalloc;
  if (text == "kolo") return Memory::kKolo;
  usage_error("--memory knows malloc and kolo, not '" + std::string(text) + "'");
}

// Options with a letter; false if it is none of them.
bool take_letter(int letter, Options& options, Said& said) {
  switch (letter) {
    case 'b': said.min_bytes = bytes_option("-b", optarg); break;
    case 'e': said.max_bytes = bytes_option("-e", optarg); break;
    case 'f': said.factor = static_cast<std::size_t>(whole_option("-f", optarg, 2, 1 << 20)); break;
    case 'i': said.step_bytes = bytes_option("-i", optarg); break;
    case 'n': said.iterations = whole_option("-n", optarg, 1, kMostCalls); break;
    case 'w': said.warmups = whole_option("-w", optarg, 0, kMostCalls); break;
    case 'c': options.checks = whole_option("-c", optarg, 0, kMostCalls); break;
    case 'd': said.dtype = optarg; break;
    case 'o':
      said.op = optarg;
      said.op_said = true;
      break;
    case 'r': options.root = whole_option("-r", optarg, 0, 1 << 20); break;
    case 'h': std::cout << kHelp; std::exit(0);
    default: return false;
  }
  return true;
}

void take_long(int name, Options& options) {
  switch (name) {
    case kRefill: options.refill = true; break;
    case kMemory: options.memory = parse_memory(optarg); break;
    case kLatency: options.mode = Mode::kLatency; break;
    case kGradients: options.gradients = optarg; break;
    case kShuffle: options.shuffle = whole_option("--shuffle", optarg, 0, 1) == 1; break;
    case kPersistent: options.persistent = true; break;
    case kSeed:
      options.seed = static_cast<std::uint64_t>(whole_option("--seed", optarg, 0, kLargestSeed));
      break;
    case kJson: options.json = optarg; break;
    case kCounters: options.counters = true; break;
    case kSpoil: options.spoil = true; break;
    case kPeer:
      options.peer = optarg;
      if (options.peer != "mpich") usage_error("--peer knows mpich, not '" + options.peer + "'");
      break;
    case kRanks: options.ranks = whole_option("-np", optarg, 1, 1024); break;
    case kRounds: options.rounds = whole_option("--rounds", optarg, 1, 1000); break;
    case kMpichTcp: options.peer_over_tcp = true; break;
    default: break;
  }
}

std::vector<std::size_t> sizes_of(const Options& options, const Said& said) {
  constexpr std::size_t kSmallest = 8;
  constexpr std::size_t kMostSizes = 10'000;
  const std::size_t usual = options.mode == Mode::kLatency ? 64U << 10 : 64U << 20;
  const std::size_t first =
      said.min_bytes.value_or(std::min(kSmallest, said.max_bytes.value_or(8)));
  const std::size_t last = said.max_bytes.value_or(std::max(first, usual));
  if (last < first) usage_error("-e is smaller than -b");
  if (said.factor && said.step_bytes) usage_error("-f and -i exclude each other");
  if (said.step_bytes && *said.step_bytes == 0) usage_error("-i wants more than 0 bytes");
  if (options.collective == Collective::kBarrier) return {0};
  std::vector<std::size_t> sizes;
  for (std::size_t size = first; size <= last;) {
    sizes.push_back(size);
    if (sizes.size() > kMostSizes) usage_error("these are more than 10000 sizes; use -f");
    size = said.step_bytes ? size + *said.step_bytes : size * said.factor.value_or(2);
    if (size == 0) size = kSmallest;  // -b 0
  }
  return sizes;
}

bool peer_has(const Options& options, kolo_dtype dtype, kolo_op op) {
  return options.peer.empty() || mpi_can_reduce(dtype, op);
}

// Fills dtypes and ops. Of "all", what does not exist is left out; what was named must exist.
void choose_types(Options& options, const Said& said) {
  const bool all_types = said.dtype == "all";
  const bool every_op = said.op == "all";
  if (all_types) {
    options.dtypes = all_dtypes();
  } else if (const auto dtype = parse_dtype(said.dtype)) {
    options.dtypes = {*dtype};
  } else {
    usage_error("-d does not know the type '" + said.dtype + "'; see --help");
  }
  if (every_op) {
    options.ops = all_ops();
  } else if (const auto op = parse_op(said.op)) {
    options.ops = {*op};
  } else {
    usage_error("-o knows sum, prod, max, min, avg and all, not '" + said.op + "'");
  }
  if (!reduces(options.collective)) {
    if (said.op_said) {
      usage_error("-o is for allreduce and reduce_scatter; " +
                  std::string(collective_name(options.collective)) + " has no operator");
    }
    if (options.collective == Collective::kBarrier) options.dtypes = {KOLO_UINT8};
    return;
  }
  if (all_types || every_op) return;
  const kolo_dtype dtype = options.dtypes.front();
  const kolo_op op = options.ops.front();
  const std::string pair = std::string(op_name(op)) + " of " + std::string(dtype_name(dtype));
  if (!can_reduce(dtype, op)) usage_error("there is no " + pair);
  if (!peer_has(options, dtype, op)) usage_error("MPI has no " + pair);
}

void choose_tensors(Options& options) {
  if (options.gradients == "resnet50") {
    options.tensors = resnet50();
  } else if (options.gradients == "bert") {
    options.tensors = bert_base();
  } else if (options.gradients == "tiny") {
    options.tensors = tiny();
  } else {
    std::ifstream file(options.gradients);
    if (!file) {
      usage_error("--gradients knows resnet50, bert and tiny, and there is no file '" +
                  options.gradients + "'");
    }
    std::string error;
    options.tensors = read_tensors(file, error);
    if (!error.empty()) usage_error(options.gradients + ": " + error);
  }
}

// The defaults that depend on the mode.
void complete(Options& options, const Said& said) {
  if (!options.gradients.empty()) {
    if (options.mode == Mode::kLatency) usage_error("--latency and --gradients exclude each other");
    if (options.collective != Collective::kAllreduce) usage_error("gradients are all-reduced only");
    if (said.min_bytes || said.max_bytes || said.factor || said.step_bytes) {
      usage_error("--gradients brings its own sizes: no -b, -e, -f or -i with it");
    }
    options.mode = Mode::kSteps;
    choose_tensors(options);
  }
  if (options.peer.empty() && said.driver_option) {
    usage_error(*said.driver_option +
                " belongs to --peer; ranks are started by kolorun -np N kolo-bench ...");
  }
  options.sizes = sizes_of(options, said);
  choose_types(options, said);
  if (options.mode == Mode::kSteps && (said.dtype == "all" || said.op == "all")) {
    usage_error("--gradients wants one type and one operator, not all");
  }
  const bool latency = options.mode == Mode::kLatency;
  const bool steps = options.mode == Mode::kSteps;
  options.iterations = said.iterations.value_or(latency ? 2000 : steps ? 10 : 20);
  options.warmups = said.warmups.value_or(latency ? 100 : steps ? 3 : 5);
}

// The option that getopt has just found, as it may be written.
std::vector<std::string> words_of(int name) {
  const option* row = kOptions;
  while (row->val != name) ++row;
  std::vector<std::string> words = {std::string("--") + row->name};
  if (row->has_arg == required_argument) words.emplace_back(optarg);
  return words;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  Said said;
  int name = 0;
  ::opterr = 0;  // the messages are ours
  while ((name = ::getopt_long_only(argc, argv, kLetters, kOptions, nullptr)) != -1) {
    const std::string word = argv[std::max(optind - 1, 1)];
    if (name == '?') usage_error("unknown option '" + word + "'; see --help");
    if (name == ':') usage_error("option '" + word + "' wants a value; see --help");
    if (!take_letter(name, options, said)) take_long(name, options);
    const bool for_driver = name >= kFirstOfDriver;
    if (for_driver && name != kPeer && !said.driver_option) {
      said.driver_option = name == kRanks ? "-np" : name == kRounds ? "--rounds" : "--mpich-tcp";
    }
    if (!for_driver && name != kJson) {
      for (std::string& part : words_of(name)) options.worker_words.push_back(std::move(part));
    }
  }
  if (optind < argc) {
    const auto collective = parse_collective(argv[optind]);
    if (!collective || optind + 1 < argc) {
      usage_error("unexpected '" + std::string(argv[collective ? optind + 1 : optind]) +
                  "'; it wants one of allreduce, reduce_scatter, allgather, alltoall, broadcast "
                  "and barrier, and options");
    }
    options.collective = *collective;
    options.worker_words.emplace_back(argv[optind]);
  }
  complete(options, said);
  return options;
}

}  // namespace kolo::bench
