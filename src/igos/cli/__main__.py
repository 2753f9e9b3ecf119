from igos.cli import main

main()
