// allreduce_peers: kolo, Gloo and MPICH in turn, round by round; medians and ratios.
//
// Nothing of them is linked here: each has a worker program of its own (worker_*.cc), which this
// one starts afresh for every round through the system's own launcher.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <thread>

#include "bench/peers/job.h"
#include "bench/peers/report.h"
#include "bench/peers/settings.h"

namespace kolo::bench {
namespace {

using Json = nlohmann::json;

std::vector<std::string> present_peers(const Settings& settings) {
  std::vector<std::string> present;
  for (const std::string& peer : settings.peers) {
    const std::string why = missing(peer);
    if (why.empty()) {
      present.push_back(peer);
    } else if (settings.peers_named) {
      die(peer + ": " + why);
    } else {
      std::cout << "# " << peer << " is left out: " << why << "\n";
    }
  }
  if (present.empty()) die("there is nothing to run");
  return present;
}

// A row for each size and system, in the table's order.
std::vector<Row> empty_rows(const Settings& settings, const std::vector<std::string>& peers) {
  std::vector<std::size_t> sizes = settings.sizes;
  if (settings.mode == Work::Mode::kLatency) sizes = {8};
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    for (const std::string& peer : peers) rows.push_back({peer, bytes, {}, {}});
  }
  return rows;
}

void add_round(std::vector<Row>& rows, const std::string& peer, const std::vector<Json>& results) {
  for (const Json& result : results) {
    const auto bytes = result.at("bytes").get<std::size_t>();
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
      return candidate.system == peer && candidate.bytes == bytes;
    });
    if (row == rows.end()) die(peer + " reports a size that nobody asked for");
    row->rounds_us.push_back(result.at("us"));
    if (result.contains("p99_us")) row->rounds_p99_us.push_back(result.at("p99_us"));
  }
}

std::ofstream open_json(const Settings& settings) {
  std::ofstream file;
  if (settings.json.empty()) return file;
  file.open(settings.json, std::ios::app);
  if (!file) die("cannot write to " + settings.json);
  return file;
}

void compare(const Settings& settings, unsigned cores) {
  const std::vector<std::string> peers = present_peers(settings);
  std::ofstream json = open_json(settings);
  std::vector<Row> rows = empty_rows(settings, peers);
  for (int round = 0; round < settings.rounds; ++round) {
    for (const std::string& peer : peers) add_round(rows, peer, run_job(peer, settings));
  }
  print_table(std::cout, settings, cores, rows);
  if (json.is_open()) print_json(json, settings, cores, rows);
}

void idle(const Settings& settings, unsigned cores) {
  std::ofstream json = open_json(settings);
  std::vector<Json> ranks = run_job(present_peers(settings).front(), settings);
  std::sort(ranks.begin(), ranks.end(),
            [](const Json& a, const Json& b) { return a.at("rank") < b.at("rank"); });
  std::cout << "# " << settings.ranks << " idle ranks on " << cores << " cores\n"
            << "# rank  seconds  % of a core\n";
  for (Json& rank : ranks) {
    const double percent = 100 * rank.at("share_of_core").get<double>();
    std::cout << rank.at("rank") << "  " << rank.at("seconds") << "  " << percent << "\n";
    rank["bench"] = "idle";
    rank["ranks"] = settings.ranks;
    if (json.is_open()) json << rank.dump() << "\n";
  }
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  const kolo::bench::Settings settings = kolo::bench::parse_settings(argc, argv);
  const unsigned cores = std::thread::hardware_concurrency();
  if (settings.mode == kolo::bench::Work::Mode::kIdle) {
    kolo::bench::idle(settings, cores);
  } else {
    kolo::bench::compare(settings, cores);
  }
}
