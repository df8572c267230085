// Tells the emulator the kernels of each engine that it can run.
#pragma once

void know_portable_kernels();
