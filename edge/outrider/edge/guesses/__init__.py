"""From what drafters propose to how likely each guess is: temperature, bias, calibration, and the mixing of several."""
