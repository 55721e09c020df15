"""`python -m podium`, for launchers that start modules (`accelerate launch -m podium train …`)."""

from podium.cli import main

if __name__ == "__main__":
    main()
