"""Three NumPy functions that run on the emulated chip as they are.

    python examples/numpy_jit.py

`tpuc.jit` traces a function once for each signature and compiles it; called without it, the same function is
NumPy on the host, which is what its results are compared with here.
"""

import numpy as np

import tpuc


def nearest(points, centres):
    """The index of the centre that is nearest to each point."""
    squares = np.sum(centres * centres, axis=1) - 2 * points @ centres.T
    return np.argmin(squares, axis=1)


def smooth(image, weight=0.25):
    """Each pixel and the mean of its four neighbours, edges repeated."""
    padded = np.pad(image, 1, mode="edge")
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return (1 - weight) * image + weight * around / 4


def spectrum(signal):
    """The power of each frequency, without the mean, as a share of all."""
    centred = signal - signal.mean(-1, keepdims=True)
    power = np.abs(np.fft.rfft(centred)) ** 2
    return power / power.sum(-1, keepdims=True)


def main():
    """Each function on the chip and on the host; cycles and the largest difference, by name."""
    rng = np.random.default_rng(0)

    def draw(*dims):
        return rng.standard_normal(dims).astype(np.float32)

    calls = {
        nearest: (draw(4096, 64), draw(128, 64)),
        smooth: (draw(512, 512),),
        spectrum: (draw(64, 1000),),
    }
    found = {}
    for function, args in calls.items():
        compiled = tpuc.jit(function, precision="highest")
        result, cycles = compiled(*args), compiled.lower(*args).estimate().cycles
        apart = np.abs(np.asarray(result, np.float64) - function(*args)).max()
        found[function.__name__] = cycles, apart
        print(f"{function.__name__:10} {cycles:9,} cycles, at most {apart:.1e} from NumPy")
    return found


if __name__ == "__main__":
    main()
