// store_stress: the spill store over real files, by each method of transfer and by seed: users that each
// know what their slots contain, drives that fail, are silent and come back, results that are late, short,
// twice, and damage that only checksums find. No wrong byte, no request without an end, no slot lost.
//   store_stress --seeds 1..50 --operations 20000      10^6 operations
//   store_stress --mutants                             what is caught when a rule of the store is left out
// Files go to the current directory. A seed draws what happens; when it happens is the machine's, so that a
// seed that failed may pass.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/store/spill_store.h"
#include "io/store/test_points.h"
#include "tests/command_line.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"
#include "tests/stress/actor.h"
#include "tests/stress/board.h"
#include "tests/stress/ill_drives.h"
#include "tests/stress/run_settings.h"

namespace spillway::stress {
namespace {

// By name, each rule of the store that is left out on purpose.
constexpr std::pair<const char*, io::StoreMutant> kMutants[] = {
#define MUTANT(name) {#name, io::StoreMutant::name},
    SPILLWAY_STORE_MUTANTS(MUTANT)
#undef MUTANT
};

// False when there is none of that name.
bool SetMutant(const std::string& name) {
  for (const auto& [known, mutant] : kMutants) {
    if (name == known) io::active_store_mutant = mutant;
  }
  return io::active_store_mutant != io::StoreMutant::kNone;
}

std::unique_ptr<io::SpillStore> MakeStore(
    const RunSettings& settings, IllDrives* drives,
    const std::vector<std::unique_ptr<io::TestDirectory>>& directories) {
  io::SpillStoreOptions options = io::SmallOptions(directories.front()->path());
  options.directories.clear();
  for (const auto& directory : directories) {
    const auto slots = static_cast<uint64_t>(settings.slots_per_directory);
    options.directories.push_back({.path = directory->path(), .cap_bytes = slots * io::kSlotBytes});
  }
  options.growth_bytes = 8 * io::kSlotBytes;
  options.engine = settings.way == Way::kThreads ? io::EngineKind::kThreads : io::EngineKind::kAuto;
  options.checksum = settings.checksum ? io::ChecksumMode::kOn : io::ChecksumMode::kOff;
  if (settings.encrypt) options.cipher = *io::SlotCipher::Create();
  options.request_bytes = settings.request_bytes;
  options.requests_in_flight = settings.requests_in_flight;
  // A drive that is well may be as slow on a busy machine: where no request may fail, it has the product's
  // time.
  if (!settings.clean()) options.request_timeout = RunSettings::kRequestTimeout;
  options.retry_time = RunSettings::kRetryTime;
  options.errors_until_closed = RunSettings::kErrorsUntilClosed;
  options.error_window = RunSettings::kErrorWindow;
  options.first_probe = RunSettings::kFirstProbe;
  options.longest_probe_pause = RunSettings::kLongestProbePause;
  options.moves_after = RunSettings::kMovesAfter;
  options.wrap_engine = [drives](std::unique_ptr<io::IoEngine> engine, size_t directory) {
    return drives->Wrap(std::move(engine), directory);
  };
  if (settings.way == Way::kBuffered) io::RefuseDirect(&options);
  return io::MakeStore(std::move(options));
}

void CheckStats(const io::SpillStore& store, const Board& board) {
  // A probe or a move that has begun while a directory was closed has a slot until it ends.
  const auto all_are_ours = [&] { return store.stats().slots_in_use == board.taken(); };
  static_cast<void>(tests::WaitUntil(all_are_ours, board.patience()));
  const io::SpillStoreStats stats = store.stats();
  const RunSettings& settings = board.settings();
  if (stats.slots_in_use != board.taken())
    board.Fail(std::to_string(stats.slots_in_use) + " slots are in use, and " +
               std::to_string(board.taken()) + " were taken");
  if (settings.damage_rate == 0 && stats.checksum_mismatches > 0) board.Fail("a checksum differs");
  if (settings.clean() && stats.errors > 0) board.Fail("errors of drives that are well");
  for (const io::DirectoryStats& directory : stats.directories) {
    if (directory.file_bytes > static_cast<uint64_t>(settings.slots_per_directory) * io::kSlotBytes)
      board.Fail("a file is larger than its cap");
    if (directory.direct != (settings.way != Way::kBuffered))
      board.Fail("another way to the disk than asked for");
  }
}

// What was met, of all seeds.
struct Counts {
  uint64_t operations = 0, bytes = 0, errors = 0, retries = 0, mismatches = 0, closed = 0, moved = 0;
  void Add(const io::SpillStoreStats& stats) {
    errors += stats.errors;
    retries += stats.retries;
    mismatches += stats.checksum_mismatches;
    for (const io::DirectoryStats& directory : stats.directories) {
      closed += directory.times_closed;
      moved += directory.slots_moved;
    }
  }
};

void RunSeed(uint64_t seed, int operations, std::chrono::seconds patience, Counts* counts) {
  Board board(RunSettings::Draw(seed, operations), patience);
  const RunSettings& settings = board.settings();
  std::vector<std::unique_ptr<io::TestDirectory>> directories;
  for (int i = 0; i < settings.directories; ++i) directories.push_back(std::make_unique<io::TestDirectory>());
  IllDrives drives(&board);
  std::unique_ptr<io::SpillStore> store = MakeStore(settings, &drives, directories);
  std::vector<std::unique_ptr<Actor>> actors;
  for (int i = 0; i < settings.actors; ++i)
    actors.push_back(std::make_unique<Actor>(store.get(), &board, static_cast<size_t>(i)));

  const auto on_threads = [&](auto run) {
    std::atomic<int> left{settings.actors};
    std::vector<std::thread> threads;
    for (const auto& actor : actors) {
      threads.emplace_back([&run, &left, &actor] {
        run(actor.get());
        --left;
      });
    }
    const auto ended = [&board, &left] {
      board.Watch();
      return left.load() == 0;
    };
    while (!tests::WaitUntil(ended)) {
    }
    for (std::thread& thread : threads) thread.join();
  };
  drives.Start();
  on_threads([&](Actor* actor) { actor->Run(static_cast<uint64_t>(settings.operations) / actors.size()); });
  drives.Heal();
  on_threads([](Actor* actor) { actor->ReadAllBack(); });

  const auto open = [&store] {
    for (const io::DirectoryStats& directory : store->stats().directories) {
      if (directory.closed) return false;
    }
    return true;
  };
  if (!tests::WaitUntil(open, patience)) board.Fail("a directory is still closed, and its drive is well");
  CheckStats(*store, board);
  for (const auto& actor : actors) {
    actor->GiveAll();
    counts->operations += actor->operations();
    counts->bytes += actor->bytes_moved();
  }
  CheckStats(*store, board);
  counts->Add(store->stats());
  store.reset();
  for (const auto& directory : directories) {
    if (!directory->Empty()) board.Fail("a file was left behind");
  }
}

// Whether the seed fails, in a process of its own that says nothing.
bool Fails(uint64_t seed, int operations, std::chrono::seconds patience) {
  const io::TestDirectory directory;  // a run that fails leaves its files
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(directory.path().c_str()) != 0) std::_Exit(0);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    Counts counts;
    RunSeed(seed, operations, patience, &counts);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

int TryMutants(uint64_t first, uint64_t last, int operations) {
  // With it, what never ends is caught. The seeds pass with it when no rule is left out.
  constexpr std::chrono::seconds kMutantsPatience{20};
  size_t caught = 0;
  for (const auto& [name, mutant] : kMutants) {
    io::active_store_mutant = mutant;
    uint64_t seed = first;
    while (seed <= last && !Fails(seed, operations, kMutantsPatience)) ++seed;
    caught += seed <= last ? 1 : 0;
    const std::string by = seed <= last ? "caught by seed " + std::to_string(seed) : "NOT caught";
    std::printf("%-22s %s\n", name, by.c_str());
    std::fflush(stdout);
  }
  std::printf("%zu of %zu mutants of the store are caught\n", caught, std::size(kMutants));
  return caught == std::size(kMutants) ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::string seeds = "1..4";
  int operations = 2500;
  int patience = 120;
  std::string mutant;
  bool all_mutants = false;
  CommandLine line("Stresses the spill store over real files with drives that fail, by seed.");
  line.Add("--seeds", &seeds, "FIRST..LAST, or one");
  line.Add("--operations", &operations, "of each seed");
  line.Add("--patience", &patience, "seconds; what takes longer has failed");
  line.Add("--mutant", &mutant, "a rule to leave out");
  line.Add("--mutants", &all_mutants, "for each rule of the store, which seed fails without it");
  line.Parse(argc, argv);
  const size_t dots = seeds.find("..");
  const uint64_t first = std::strtoull(seeds.c_str(), nullptr, 10);
  const uint64_t last =
      dots == std::string::npos ? first : std::strtoull(seeds.c_str() + dots + 2, nullptr, 10);
  if (all_mutants) return TryMutants(first, last, operations);
  if (!mutant.empty() && !SetMutant(mutant)) {
    std::fprintf(stderr, "there is no mutant %s\n", mutant.c_str());
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  Counts counts;
  for (uint64_t seed = first; seed <= last; ++seed)
    RunSeed(seed, operations, std::chrono::seconds(patience), &counts);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%" PRIu64 " seeds passed: %" PRIu64 " operations, %.1f GB, %" PRIu64 " retries, %" PRIu64
              " errors, %" PRIu64 " wrong checksums, directories closed %" PRIu64 " times, %" PRIu64
              " slots moved, %.0f s\n",
              last - first + 1, counts.operations, static_cast<double>(counts.bytes) / 1e9, counts.retries,
              counts.errors, counts.mismatches, counts.closed, counts.moved, seconds);
  return 0;
}

}  // namespace
}  // namespace spillway::stress

int main(int argc, char** argv) { return spillway::stress::Main(argc, argv); }
