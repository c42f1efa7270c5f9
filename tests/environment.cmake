# What every test runs with; ctest reads this before it starts one.
# Tests spill little. The usual reserve (5 %, at least 10 GiB) would refuse them on a disk that is nearly full.
set(ENV{SPILLWAY_DISK_RESERVE} 1GiB)
# What one test has learnt is nothing that another may begin with.
set(ENV{SPILLWAY_PROFILE} off)
# What the developer has set for his own jobs is nobody else's.
set(ENV{SPILLWAY_CONF} none)
