#include "bench/kolo_bench/compare.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/common/launch.h"
#include "bench/common/statistics.h"
#include "bench/common/text.h"

namespace kolo::bench {
namespace {

using Json = nlohmann::json;

// A figure that both sides have, e.g. the time in place, and where a row has it.
struct Column {
  const char* name;
  Json::json_pointer place;
};

std::vector<Column> columns_of(Mode mode) {
  switch (mode) {
    case Mode::kSweep:
      return {{"out-of-place", Json::json_pointer("/out_of_place/time_us")},
              {"in-place", Json::json_pointer("/in_place/time_us")}};
    case Mode::kLatency:
      return {{"p50", Json::json_pointer("/p50_us")}, {"p99", Json::json_pointer("/p99_us")}};
    case Mode::kSteps:
      return {{"median", Json::json_pointer("/median_us")}, {"p90", Json::json_pointer("/p90_us")}};
  }
  return {};
}

// The rounds of one size on both sides.
struct Row {
  Json kolo;  // of the first round, for what does not change
  Json peer;
  struct Times {
    std::vector<double> kolo_us, peer_us;
  };
  std::vector<Times> times;  // by column
};

bool same_subject(const Json& a, const Json& b) {
  for (const char* key : {"collective", "bytes", "count", "type", "redop", "root"}) {
    if (a.at(key) != b.at(key)) return false;
  }
  return true;
}

std::string peer_program() { return own_folder() / "kolo-bench-peer-mpich"; }

Command kolo_command(const Options& options) {
  return {own_folder() / "kolorun", "-np", std::to_string(options.ranks),
          own_folder() / "kolo-bench"};
}

Command peer_command(const Options& options) {
  Command command = {find_mpiexec()};
  if (options.peer_over_tcp) {
    for (const char* word : {"-genv", "UCX_TLS", "tcp", "-genv", "UCX_NET_DEVICES", "lo"}) {
      command.emplace_back(word);
    }
  }
  command.insert(command.end(), {"-n", std::to_string(options.ranks), peer_program()});
  return command;
}

void require_programs() {
  if (find_mpiexec().empty()) die("mpiexec.hydra is missing; install mpich");
  if (!is_program(peer_program())) {
    die(peer_program() +
        " is missing: install MPICH (mpich libmpich-dev), then configure kolo "
        "with KOLO_BUILD_BENCH=ON and build");
  }
  if (!is_program(own_folder() / "kolorun")) {
    die("kolorun is missing beside kolo-bench; build or install it too");
  }
}

// Runs one job; its rows.
std::vector<Json> run_job(const Options& options, Command command, const char* who) {
  constexpr std::chrono::milliseconds kLimit = std::chrono::hours(1);
  std::vector<Json> rows;
  std::string failure;
  {
    const ScratchFolder folder("kolo-bench");
    const std::string results = folder.path() / "results";
    command.insert(command.end(), options.worker_words.begin(), options.worker_words.end());
    command.insert(command.end(), {"--json", results});
    failure = run_to_end({command}, folder.path() / "output", kLimit);
    if (failure.empty()) rows = read_json_lines(results);
  }
  if (!failure.empty()) die(std::string("a job of ") + who + " " + failure);
  if (rows.empty()) die(std::string("a job of ") + who + " left no results");
  return rows;
}

void add_times(std::vector<Row>& rows, const std::vector<Column>& columns,
               const std::vector<Json>& kolo, const std::vector<Json>& peer) {
  for (const Json& result : kolo) {
    const auto other = std::find_if(peer.begin(), peer.end(), [&](const Json& candidate) {
      return same_subject(candidate, result);
    });
    if (other == peer.end()) continue;  // of "all", what MPI does not have
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
      return same_subject(candidate.kolo, result);
    });
    if (row == rows.end()) {
      rows.push_back({result, *other, std::vector<Row::Times>(columns.size())});
      row = rows.end() - 1;
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!result.contains(columns[i].place)) continue;  // a barrier is not in place
      row->times[i].kolo_us.push_back(result.at(columns[i].place));
      row->times[i].peer_us.push_back(other->at(columns[i].place));
    }
  }
}

std::string subject_text(const Json& row) {
  return format("%12zu  %12zu  %11s  %6s", row.at("bytes").get<std::size_t>(),
                row.at("count").get<std::size_t>(), row.at("type").get<std::string>().c_str(),
                row.at("redop").get<std::string>().c_str());
}

void print_table(const Options& options, const std::vector<Column>& columns,
                 const std::vector<Row>& rows) {
  const Json& kolo = rows.front().kolo;
  const Json& peer = rows.front().peer;
  const auto text = [](const Json& row, const char* key) { return row.at(key).get<std::string>(); };
  std::cout << "# kolo " << text(kolo, "version") << ", road " << text(kolo, "road")
            << ", memory from " << text(kolo, "memory") << "; " << options.peer << " "
            << text(peer, "version") << ", " << text(peer, "road") << ", memory from "
            << text(peer, "memory") << "\n# " << text(kolo, "collective") << ", " << options.ranks
            << " ranks, inputs " << text(kolo, "inputs") << "; medians of " << options.rounds
            << " interleaved rounds, in us; kolo/" << options.peer
            << " below 1: kolo takes less time\n";
  std::string heads = format("#%56s", "");
  std::string names = "#       size         count         type   redop";
  for (const Column& column : columns) {
    heads += format("%-34s", column.name);
    names +=
        format(" %10s %10s %11s", "kolo", options.peer.c_str(), ("kolo/" + options.peer).c_str());
  }
  std::cout << heads << "\n" << names << "\n";
  for (const Row& row : rows) {
    std::string line = subject_text(row.kolo);
    for (const Row::Times& times : row.times) {
      if (times.kolo_us.empty()) continue;
      const double kolo_us = median(times.kolo_us);
      const double peer_us = median(times.peer_us);
      line += format(" %10.2f %10.2f %11.3f", kolo_us, peer_us, kolo_us / peer_us);
    }
    std::cout << line << "\n";
  }
  std::cout << std::flush;
}

void write_json(const Options& options, const std::vector<Column>& columns,
                const std::vector<Row>& rows) {
  if (options.json.empty()) return;
  std::ofstream file(options.json, std::ios::app);
  for (const Row& row : rows) {
    Json line = row.kolo;
    for (const char* key : {"out_of_place", "in_place", "p50_us", "p90_us", "p99_us", "p99.9_us",
                            "max_us", "median_us", "min_us", "algbw", "seed", "system"}) {
      line.erase(key);
    }
    line["bench"] = "peer_" + line.at("bench").get<std::string>();
    line["peer"] = options.peer;
    line["peer_version"] = row.peer.at("version");
    line["peer_road"] = row.peer.at("road");
    line["rounds"] = options.rounds;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Row::Times& times = row.times[i];
      if (times.kolo_us.empty()) continue;
      line[columns[i].name] = {{"kolo_us", median(times.kolo_us)},
                               {"peer_us", median(times.peer_us)},
                               {"ratio", median(times.kolo_us) / median(times.peer_us)},
                               {"kolo_rounds_us", times.kolo_us},
                               {"peer_rounds_us", times.peer_us}};
    }
    file << line.dump() << "\n";
  }
  if (!file.flush()) die("cannot write to " + options.json);
}

}  // namespace

int compare(const Options& options) {
  require_programs();
  const std::vector<Column> columns = columns_of(options.mode);
  std::vector<Row> rows;
  for (int round = 0; round < options.rounds; ++round) {
    const std::vector<Json> kolo = run_job(options, kolo_command(options), "kolo");
    const std::vector<Json> peer = run_job(options, peer_command(options), options.peer.c_str());
    add_times(rows, columns, kolo, peer);
    std::cerr << "# round " << round + 1 << " of " << options.rounds << " is done" << std::endl;
  }
  if (rows.empty()) die("kolo and " + options.peer + " have nothing in common of what is asked");
  print_table(options, columns, rows);
  write_json(options, columns, rows);
  return 0;
}

}  // namespace kolo::bench
