// Hopper's products are not emulated; headers that name them need none of it here.
#pragma once
